"""Differential operators: functions from Arrow and state to Arrow.

Pure but for their run files.
"""
