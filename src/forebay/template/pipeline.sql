-- Orders from Kafka, as JSON. A record that does not decode is kept, byte for
-- byte, with the reason, in the topic orders-dlq.
CREATE SOURCE IF NOT EXISTS orders (
    id BIGINT NOT NULL,
    country STRING NOT NULL,
    amount DOUBLE NOT NULL
) FROM KAFKA (
    brokers = '${KAFKA_BOOTSTRAP_SERVERS}',
    topic = 'orders'
) FORMAT JSON
ON ERROR = 'dead_letter' WITH (dead_letter_topic = 'orders-dlq');

-- A Delta table that follows the topic.
CREATE MATERIALIZED VIEW IF NOT EXISTS revenue AS
SELECT country, count(*) AS orders, sum(amount) AS total
FROM orders GROUP BY country;

SELECT * FROM revenue ORDER BY total DESC;
