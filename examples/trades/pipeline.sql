-- Trades in, one-minute bars out. Run it against any broker:
--   KAFKA_BOOTSTRAP_SERVERS=localhost:9092 forebay run examples/trades/pipeline.sql

CREATE SOURCE trades (
    trade_id   BIGINT NOT NULL,
    symbol     STRING NOT NULL,
    price      DOUBLE NOT NULL,
    quantity   BIGINT NOT NULL,
    event_time TIMESTAMP NOT NULL,
    WATERMARK FOR event_time AS event_time - INTERVAL '30' SECOND
) FROM KAFKA (
    brokers  = '${KAFKA_BOOTSTRAP_SERVERS:-localhost:9092}',
    topic    = 'trades',
    group_id = 'trades-demo',
    max_records_per_batch = 50000
)
FORMAT JSON
ON ERROR = 'skip';

CREATE MATERIALIZED VIEW bars AS
SELECT TUMBLE_START(event_time, INTERVAL '1' MINUTE) AS minute,
       symbol,
       min_by(price, event_time) AS open,
       max(price)                AS high,
       min(price)                AS low,
       max_by(price, event_time) AS close,
       sum(quantity)             AS volume,
       count(*)                  AS trades
FROM trades
GROUP BY TUMBLE(event_time, INTERVAL '1' MINUTE), symbol
EMIT CHANGES;
