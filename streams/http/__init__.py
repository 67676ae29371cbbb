"""HTTP endpoints of services.

    listening                    a host, a port, TLS and a password: what is allowed together
    server                       the endpoint: /healthz, /readyz, /metrics, and the routes of a
                                 service
    timed_reader                 what a client sends, until a moment
    unauthenticated_connections  of clients that have proven nothing
    metrics                      families of samples, as text for Prometheus

It knows nothing of what the services do.
"""
