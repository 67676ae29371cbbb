"""Plans for people: trees and pictures."""
