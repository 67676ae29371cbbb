"""Nexmark's queries q0 to q22 as views, in our dialect.

Where the original speaks of a stream, the view speaks of the relation of all events so far:

    tumbling windows    time_bucket of the event time, grouped by
    hopping windows     each row once for each window it lies in (`unnest` of the hops)
    session windows     a session starts where the row before is the gap away, or more
    q6                  a frame of rows; the row that wins an auction is its best bid
    q10                 what it would write to files is the view; the partition is two columns
    q12                 processing time is none of the data's: windows of event time
    q13                 the bounded side input is a table
    q14                 the function that counts characters is written in SQL
    q15 to q17          a day is a part of the event time

Those of windows are views with EMIT ON CLOSE too (`ON_CLOSE`): the rows of a window come once,
as the original has them.

The original leaves ties open (q6, q9, q18, q19); here the whole row breaks them.

Source: the queries' purposes as the Nexmark suite for Flink lists them,
github.com/nexmark/nexmark, README; the SQL is our own.
"""

SIDE_INPUT = {"side_input": "key BIGINT, value VARCHAR"}
SIDE_KEYS = 100

_WON = """SELECT a.id, a.category, a.seller, b.auction, b.bidder, b.price, b.dateTime, b.extra
    FROM auction a JOIN bid b ON a.id = b.auction
    WHERE b.dateTime BETWEEN a.dateTime AND a.expires
    QUALIFY row_number() OVER (
        PARTITION BY a.id ORDER BY b.price DESC, b.dateTime, b.bidder, b.extra) = 1"""

_HOPS = """SELECT auction, start, count(*) AS num FROM (
        SELECT auction, time_bucket(INTERVAL 2 SECOND, dateTime)
            - INTERVAL 2 SECOND * unnest(generate_series(0, 4)) AS start FROM bid) hop
    GROUP BY auction, start"""

_DAILY = """count(*) AS total_bids,
    count(*) FILTER (price < 10000) AS rank1_bids,
    count(*) FILTER (price >= 10000 AND price < 1000000) AS rank2_bids,
    count(*) FILTER (price >= 1000000) AS rank3_bids,
    count(DISTINCT bidder) AS total_bidders,
    count(DISTINCT bidder) FILTER (price < 10000) AS rank1_bidders,
    count(DISTINCT bidder) FILTER (price >= 10000 AND price < 1000000) AS rank2_bidders,
    count(DISTINCT bidder) FILTER (price >= 1000000) AS rank3_bidders,
    count(DISTINCT auction) AS total_auctions,
    count(DISTINCT auction) FILTER (price < 10000) AS rank1_auctions,
    count(DISTINCT auction) FILTER (price >= 10000 AND price < 1000000) AS rank2_auctions,
    count(DISTINCT auction) FILTER (price >= 1000000) AS rank3_auctions"""

QUERIES = {
    "q0": "SELECT auction, bidder, price, dateTime, extra FROM bid",
    "q1": "SELECT auction, bidder, 0.908 * price AS price, dateTime, extra FROM bid",
    "q2": "SELECT auction, price FROM bid WHERE auction % 123 = 0",
    "q3": """SELECT p.name, p.city, p.state, a.id
        FROM auction a JOIN person p ON a.seller = p.id
        WHERE a.category = 10 AND p.state IN ('OR', 'ID', 'CA')""",
    "q4": """SELECT category, avg(final) AS average FROM (
            SELECT max(b.price) AS final, a.category
            FROM auction a JOIN bid b ON a.id = b.auction
            WHERE b.dateTime BETWEEN a.dateTime AND a.expires
            GROUP BY a.id, a.category) best
        GROUP BY category""",
    "q5": f"""WITH hops AS ({_HOPS})
        SELECT hops.auction, hops.num, hops.start FROM hops
        JOIN (SELECT start, max(num) AS most FROM hops GROUP BY start) hottest
        ON hops.start = hottest.start AND hops.num = hottest.most""",
    "q6": f"""SELECT seller, avg(price) OVER (PARTITION BY seller
            ORDER BY dateTime, id ROWS BETWEEN 10 PRECEDING AND CURRENT ROW) AS average
        FROM ({_WON}) won""",
    "q7": """SELECT b.auction, b.price, b.bidder, b.dateTime, b.extra FROM bid b
        JOIN (SELECT max(price) AS highest,
                time_bucket(INTERVAL 10 SECOND, dateTime) AS start FROM bid GROUP BY start) top
        ON b.price = highest AND time_bucket(INTERVAL 10 SECOND, b.dateTime) = start""",
    "q8": """SELECT p.id, p.name, p.start FROM
            (SELECT DISTINCT id, name, time_bucket(INTERVAL 10 SECOND, dateTime) AS start
                FROM person) p
        JOIN (SELECT DISTINCT seller, time_bucket(INTERVAL 10 SECOND, dateTime) AS start
                FROM auction) a
        ON p.id = a.seller AND p.start = a.start""",
    "q9": f"SELECT id, auction, bidder, price, dateTime, extra FROM ({_WON}) won",
    "q10": """SELECT auction, bidder, price, dateTime, extra,
        strftime(dateTime, '%Y-%m-%d') AS dt, strftime(dateTime, '%H:%M') AS hm FROM bid""",
    "q11": """SELECT bidder, count(*) AS bid_count,
            min(dateTime) AS start, max(dateTime) + INTERVAL 10 SECOND AS stop
        FROM (SELECT bidder, dateTime, sum(begins) OVER (PARTITION BY bidder
                    ORDER BY dateTime RANGE UNBOUNDED PRECEDING) AS session
            FROM (SELECT bidder, dateTime, CASE WHEN dateTime - lag(dateTime) OVER (
                        PARTITION BY bidder ORDER BY dateTime) < INTERVAL 10 SECOND
                    THEN 0 ELSE 1 END AS begins FROM bid) begun) sessions
        GROUP BY bidder, session""",
    "q12": """SELECT bidder, count(*) AS bid_count,
            time_bucket(INTERVAL 10 SECOND, dateTime) AS start
        FROM bid GROUP BY bidder, start""",
    "q13": f"""SELECT b.auction, b.bidder, b.price, b.dateTime, s.value FROM bid b
        JOIN side_input s ON b.auction % {SIDE_KEYS} = s.key""",
    "q14": """SELECT auction, bidder, 0.908 * price AS price,
            CASE WHEN hour(dateTime) BETWEEN 8 AND 18 THEN 'dayTime'
                WHEN hour(dateTime) <= 6 OR hour(dateTime) >= 20 THEN 'nightTime'
                ELSE 'otherTime' END AS bidTimeType,
            dateTime, extra, length(extra) - length(replace(extra, 'c', '')) AS c_counts
        FROM bid WHERE 0.908 * price > 1000000 AND 0.908 * price < 50000000""",
    "q15": f"""SELECT strftime(dateTime, '%Y-%m-%d') AS day, {_DAILY} FROM bid GROUP BY day""",
    "q16": f"""SELECT channel, strftime(dateTime, '%Y-%m-%d') AS day,
            max(strftime(dateTime, '%H:%M')) AS minute, {_DAILY}
        FROM bid GROUP BY channel, day""",
    "q17": """SELECT auction, strftime(dateTime, '%Y-%m-%d') AS day, count(*) AS total_bids,
            count(*) FILTER (price < 10000) AS rank1_bids,
            count(*) FILTER (price >= 10000 AND price < 1000000) AS rank2_bids,
            count(*) FILTER (price >= 1000000) AS rank3_bids,
            min(price) AS min_price, max(price) AS max_price,
            avg(price) AS avg_price, sum(price) AS sum_price
        FROM bid GROUP BY auction, day""",
    "q18": """SELECT auction, bidder, price, channel, url, dateTime, extra FROM bid
        QUALIFY row_number() OVER (PARTITION BY bidder, auction
            ORDER BY dateTime DESC, price, channel, url, extra) = 1""",
    "q19": """SELECT *, row_number() OVER (PARTITION BY auction
            ORDER BY price DESC, dateTime, bidder, channel, url, extra) AS rank_number
        FROM bid QUALIFY rank_number <= 10""",
    "q20": """SELECT b.auction, b.bidder, b.price, b.channel, b.url, b.dateTime, b.extra,
            a.itemName, a.description, a.initialBid, a.reserve, a.dateTime AS opened,
            a.expires, a.seller, a.category, a.extra AS more
        FROM bid b JOIN auction a ON b.auction = a.id WHERE a.category = 10""",
    "q21": """SELECT auction, bidder, price, channel, CASE lower(channel)
            WHEN 'apple' THEN '0' WHEN 'google' THEN '1' WHEN 'facebook' THEN '2'
            WHEN 'baidu' THEN '3'
            ELSE nullif(regexp_extract(url, '[?&]channel_id=([^&]*)', 1), '') END AS channel_id
        FROM bid WHERE channel_id IS NOT NULL""",
    "q22": """SELECT auction, bidder, price, channel, split_part(url, '/', 4) AS dir1,
        split_part(url, '/', 5) AS dir2, split_part(url, '/', 6) AS dir3 FROM bid""",
}

_TEN = "INTERVAL 10 SECOND"

ON_CLOSE = {
    "q5": f"start + {_TEN}",
    "q7": f"time_bucket({_TEN}, dateTime) + {_TEN}",
    "q8": f"start + {_TEN}",
    "q11": "stop",
    "q12": f"start + {_TEN}",
}
"""The queries of windows, and when a window ends by the columns of its rows."""
