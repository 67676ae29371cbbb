"""What the demo maintains: the sources over the feed's topics and the views over them.

One source, and the view over it, have event times: departures are reported when a plane has
left, which may be hours after the time in the schedule that counts.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class View:
    """A maintained view: what it reads, and the columns by which the page orders its rows.

    `key` identifies a row in a table that the view is kept in. `options` are those of WITH.
    """

    name: str
    title: str
    reads: tuple[str, ...]
    query: str
    order: str
    key: tuple[str, ...] = ()
    options: str = ""

    @property
    def statement(self) -> str:
        """The statement that creates it."""
        return f"CREATE MATERIALIZED VIEW {self.name} {self.options} AS {self.query}"


DELAY_MS = 3 * 3_600_000
"""How far the watermark of departures is behind the latest scheduled time that was read."""

ALL_HISTORY = "RETAIN HISTORY FOR '3650 days'"
"""Event times are a year apart: an hour of them would be a view's last."""

SOURCES = (
    """CREATE SOURCE airlines FROM KAFKA (TOPIC 'airlines')
       (carrier VARCHAR, name VARCHAR) FORMAT JSON ENVELOPE NONE""",
    """CREATE SOURCE airports FROM KAFKA (TOPIC 'airports')
       (faa VARCHAR, name VARCHAR, lat DOUBLE, lon DOUBLE, alt BIGINT, tzone VARCHAR)
       FORMAT JSON ENVELOPE NONE""",
    """CREATE SOURCE planes FROM KAFKA (TOPIC 'planes')
       (tailnum VARCHAR, year BIGINT, type VARCHAR, manufacturer VARCHAR, model VARCHAR,
        seats BIGINT) FORMAT JSON ENVELOPE NONE""",
    """CREATE SOURCE weather FROM KAFKA (TOPIC 'weather')
       (origin VARCHAR, observed TIMESTAMP, temp DECIMAL(9,2), wind_speed DECIMAL(9,2),
        visib DECIMAL(9,2), precip DECIMAL(9,2)) FORMAT JSON ENVELOPE NONE""",
    """CREATE SOURCE flights FROM KAFKA (TOPIC 'flights')
       (id BIGINT, carrier VARCHAR, flight BIGINT, tailnum VARCHAR, origin VARCHAR,
        dest VARCHAR,
        hour BIGINT, distance BIGINT, dep_delay BIGINT, arr_delay BIGINT,
        cancelled BOOLEAN, sched_dep TIMESTAMP) FORMAT JSON ENVELOPE NONE""",
    """CREATE SOURCE plane_state FROM KAFKA (TOPIC 'plane_state')
       (tailnum VARCHAR, state VARCHAR, carrier VARCHAR, flight BIGINT, origin VARCHAR,
        dest VARCHAR, delay BIGINT, changed TIMESTAMP)
       FORMAT JSON ENVELOPE UPSERT (KEY (tailnum))""",
    f"""CREATE SOURCE departures FROM KAFKA (TOPIC 'departures')
       (id BIGINT, carrier VARCHAR, origin VARCHAR, delay BIGINT, sched_dep TIMESTAMP,
        WATERMARK FOR sched_dep AS sched_dep - INTERVAL '{DELAY_MS // 1000} seconds')
       FORMAT JSON WITH (LATE ROWS PLACE, IDLE AFTER '2 seconds', {ALL_HISTORY})""",
)

VIEWS = (
    View(
        "delays_by_airline",
        "Delays by airline",
        ("flights", "airlines"),
        """SELECT a.name AS airline, count(*) AS flights, avg(f.dep_delay) AS average_delay,
                  max(f.dep_delay) AS worst_delay
           FROM flights f JOIN airlines a ON f.carrier = a.carrier
           WHERE NOT f.cancelled GROUP BY a.name""",
        "average_delay DESC",
        ("airline",),
    ),
    View(
        "departures_by_hour",
        "Departures by origin and hour",
        ("flights",),
        """SELECT origin, hour, count(*) AS flights,
                  sum(CASE WHEN cancelled THEN 1 ELSE 0 END) AS cancelled
           FROM flights GROUP BY origin, hour""",
        "cancelled DESC, origin, hour",
        ("origin", "hour"),
    ),
    View(
        "board",
        "Planes by state, as they change",
        ("plane_state",),
        """SELECT state, count(*) AS planes, min(changed) AS longest_unchanged,
                  min(delay) AS least_delay, max(delay) AS worst_delay
           FROM plane_state GROUP BY state""",
        "state",
        ("state",),
    ),
    View(
        "fleet_by_maker",
        "Planes away from the gate, by maker",
        ("plane_state", "planes"),
        """SELECT p.manufacturer AS maker, s.state AS state, count(*) AS planes,
                  min(p.year) AS oldest, max(s.delay) AS worst_delay
           FROM plane_state s JOIN planes p ON s.tailnum = p.tailnum
           GROUP BY p.manufacturer, s.state""",
        "planes DESC, maker, state",
        ("maker", "state"),
    ),
    View(
        "delays_by_visibility",
        "Delays by visibility in miles",
        ("flights", "weather"),
        """SELECT w.visib AS visibility, count(*) AS flights, avg(f.dep_delay) AS average_delay,
                  max(w.wind_speed) AS strongest_wind
           FROM flights f JOIN weather w
             ON f.origin = w.origin AND date_trunc('hour', f.sched_dep) = w.observed
           WHERE NOT f.cancelled GROUP BY w.visib""",
        "visibility",
        ("visibility",),
    ),
    View(
        "late_airlines",
        "Airlines late on average (a view over a view)",
        ("delays_by_airline",),
        """SELECT airline, round(average_delay, 1) AS average_delay, worst_delay
           FROM delays_by_airline WHERE average_delay > 10 AND flights >= 20""",
        "average_delay DESC",
        ("airline",),
    ),
)

EVENT_VIEWS = (
    View(
        "punctuality",
        "Departures by scheduled time (event time)",
        ("departures",),
        """SELECT time_bucket(INTERVAL '3 hours', sched_dep) AS scheduled, origin,
                  count(*) AS flights, avg(delay) AS average_delay, max(delay) AS worst_delay
           FROM departures GROUP BY ALL""",
        "scheduled DESC, origin",
        options=f"WITH ({ALL_HISTORY})",
    ),
)
"""Views whose times are event times: they are read at times of 2013."""

FEEDS = {
    "flights": (
        "delays_by_airline",
        "departures_by_hour",
        "delays_by_visibility",
        "late_airlines",
    ),
    "plane_state": ("board", "fleet_by_maker"),
}
"""The views fed by the busy topics, whose freshness is measured."""
