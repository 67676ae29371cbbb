"""The watermark that a lane knows before Spark reports it, and what it does if they differ."""

from streams.replica.spark.watermark import Progress, QueryWatermark, parsed


def following() -> QueryWatermark:
    """Three micro-batches, of which the second fed 50."""
    watermark = QueryWatermark()
    for number, fed in enumerate((None, 50, None)):
        watermark.begin(number)
        if fed is not None:
            watermark.feed(fed)
    return watermark


def test_it_is_what_was_fed_last_and_never_goes_back() -> None:
    watermark = following()
    assert watermark.watermark_ms == 50
    watermark.feed(40)
    assert watermark.watermark_ms == 50


def test_spark_agrees_or_is_followed_or_is_wrong() -> None:
    watermark = following()
    assert watermark.compare(Progress(1, 0)) is None
    assert watermark.compare(Progress(2, 50)) is None
    assert watermark.watermark_ms == 50
    wrong = watermark.compare(Progress(2, 49))
    assert wrong == "Spark's watermark was 49 ms in micro-batch 2, expected 50 ms"
    assert watermark.compare(Progress(2, 60)) is None, "it took in a micro-batch that failed"
    assert watermark.watermark_ms == 60
    assert watermark.compare(Progress(99, 0)) is None, "not of this query"


def test_a_report_without_a_watermark_says_nothing() -> None:
    text = "2023-11-14T22:13:20.500Z"
    assert parsed({"batchId": 7, "eventTime": {"watermark": text}}) == Progress(
        7, 1_700_000_000_500
    )
    assert parsed({"batchId": 7, "eventTime": {}}) is None
    assert (
        parsed({"batchId": 7, "eventTime": {"watermark": "+10000-01-01T00:00:00.000Z"}}) is None
    )
