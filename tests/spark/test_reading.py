"""Spark reads a topic as it is."""


def load(spark, url, topic, **options):
    return spark.read.format("quiver").options(url=url, topic=topic, **options).load()


def test_a_topic_is_a_data_frame(spark, queue, url, topic):
    queue.create_topic(topic, retention="forever", partitions=2)
    queue.send_batch(topic, [quiver_message(number) for number in range(100)])
    rows = load(spark, url, topic).collect()
    assert sorted(row.body.decode() for row in rows) == sorted(str(n) for n in range(100))


def quiver_message(number):
    from quiver import Message

    return Message(str(number), key=f"k{number % 7}")
