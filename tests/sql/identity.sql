CREATE SOURCE TABLE orders (order_id BIGINT, customer_id VARCHAR, amount DECIMAL(10, 2), ts TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL '5' SECOND) WITH (connector = 'kafka', topic = 'orders', 'bootstrap.servers' = 'localhost:9092', 'group.id' = 'laminardb-orders', format = 'json', 'auto.offset.reset' = 'earliest')
CREATE SOURCE TABLE trades (symbol VARCHAR, price DOUBLE, volume BIGINT, exchange VARCHAR, trade_time TIMESTAMP, WATERMARK FOR trade_time AS trade_time - INTERVAL '3' SECOND) WITH (connector = 'kafka', topics = 'trades-nyse, trades-nasdaq, trades-cboe', 'bootstrap.servers' = 'broker1:9092,broker2:9092,broker3:9092', 'group.id' = 'laminardb-trades', format = 'avro', 'schema.registry.url' = 'http://registry:8081', 'auto.offset.reset' = 'latest', 'max.poll.records' = '5000', 'watermark.max.out.of.orderness.ms' = '3000', 'watermark.idle.timeout.ms' = '60000')
CREATE SOURCE TABLE users_cdc (id BIGINT, name VARCHAR, email VARCHAR, updated_at TIMESTAMP, WATERMARK FOR updated_at AS updated_at - INTERVAL '10' SECOND) WITH (connector = 'kafka', topic = 'dbserver1.public.users', 'bootstrap.servers' = 'localhost:9092', 'group.id' = 'laminardb-users-cdc', format = 'debezium-json', 'auto.offset.reset' = 'earliest')
CREATE SOURCE TABLE events (event_type VARCHAR, payload VARCHAR, event_time TIMESTAMP, WATERMARK FOR event_time AS event_time - INTERVAL '1' SECOND) WITH (connector = 'kafka', topic = 'events', 'bootstrap.servers' = 'localhost:9092', 'group.id' = 'laminardb-events', format = 'json', 'include.metadata' = 'true', 'backpressure.high.watermark' = '0.9', 'backpressure.low.watermark' = '0.6', 'poll.timeout.ms' = '50', 'partition.assignment.strategy' = 'cooperative-sticky')
CREATE SOURCE TABLE sensor_readings (sensor_id VARCHAR, temperature DOUBLE, humidity DOUBLE, reading_time TIMESTAMP, WATERMARK FOR reading_time AS reading_time - INTERVAL '2' SECOND) WITH (connector = 'kafka', topic = 'sensor-readings', 'bootstrap.servers' = 'broker:9092', 'group.id' = 'laminardb-sensors', format = 'protobuf', 'schema.registry.url' = 'http://registry:8081', 'kafka.security.protocol' = 'SASL_SSL', 'kafka.sasl.mechanism' = 'PLAIN', 'kafka.sasl.username' = 'user', 'kafka.sasl.password' = 'secret')
CREATE SOURCE TABLE orders (order_id BIGINT, amount DECIMAL(10, 2), ts TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL '5' SECOND) WITH (connector = 'kafka', topic = 'orders', 'bootstrap.servers' = 'localhost:9092', 'group.id' = 'laminardb-orders', format = 'json')
CREATE MATERIALIZED VIEW order_stats AS SELECT TUMBLE_START(ts, INTERVAL '1' MINUTE) as window_start, COUNT(*) as order_count, SUM(amount) as total_amount FROM orders GROUP BY TUMBLE(ts, INTERVAL '1' MINUTE) EMIT ON WINDOW CLOSE
CREATE SOURCE trades (symbol VARCHAR NOT NULL, price DOUBLE NOT NULL, ts TIMESTAMP NOT NULL) FROM KAFKA (brokers = 'broker1:9092', topic = 'trades') FORMAT JSON ON ERROR = 'dead_letter' WITH (dead_letter_topic = 'trades-dlq', max_errors_per_second = 100, include_raw_message = true)
CREATE SOURCE logs (level VARCHAR, message VARCHAR, ts TIMESTAMP) FROM KAFKA (brokers = 'localhost:9092', topic = 'app-logs') FORMAT JSON ON ERROR = 'skip'
CREATE SOURCE payments (id BIGINT NOT NULL, amount DOUBLE NOT NULL, ts TIMESTAMP NOT NULL) FROM KAFKA (brokers = 'broker1:9092', topic = 'payments') FORMAT AVRO USING SCHEMA REGISTRY (url = 'http://schema-registry:8081') ON ERROR = 'fail'
SELECT * FROM laminar_catalog.source_errors WHERE source_name = 'trades'
ALTER SOURCE trades ON ERROR = 'skip'
ALTER SOURCE trades ON ERROR = dead_letter WITH (dead_letter_topic = 'x')
ALTER SOURCE trades SET (mask = 'email, card*')
SHOW SOURCES
DESCRIBE SOURCE orders
DROP SOURCE orders
CREATE SOURCE t (a INT) WITH (connector = 'kafka')
CREATE SOURCE t WITH ('connector' = 'KAFKA', topic = 'x')
CREATE SOURCE IF NOT EXISTS t (a INT) WITH (connector = 'kafka')
CREATE OR REPLACE SOURCE t (a INT) WITH (connector = 'kafka')
CREATE OR REPLACE SOURCE TABLE t (a INT) FROM DATAGEN ()
CREATE SOURCE TABLE IF NOT EXISTS t FROM DATAGEN (rows_per_second = 10)
CREATE SOURCE t FROM KAFKA (brokers = 'b', topic = 't', group_id = 'g')
CREATE SOURCE t FROM KAFKA (brokers = 'b', topic = 't', 'group.id' = 'g')
CREATE SOURCE t FROM KAFKA (bootstrap.servers = 'b', Topic = 't', GROUP.ID = 'g')
CREATE SOURCE t FROM KAFKA (bootstrap_servers = 'b', `group.id` = 'g', "topic" = "t")
CREATE SOURCE t FROM KAFKA (topic = 't') FORMAT CSV (delimiter = ';', 'quote' = '"', null = '')
CREATE SOURCE t FROM KAFKA (topic = 't') FORMAT 'csv'
CREATE SOURCE t FROM KAFKA (topic = 't') FORMAT PROTOBUF USING SCHEMA REGISTRY (url = 'u', username = 'n', password = 'p', bearer_token = 'x', 'ssl.ca.location' = '/ca')
CREATE SOURCE t FROM KAFKA (topic = 't') FORMAT RAW
CREATE SOURCE t FROM KAFKA (topic = 't') FORMAT DEBEZIUM-JSON
CREATE SOURCE t FROM KAFKA (topic = 't') FORMAT DEBEZIUM_JSON ON ERROR = fail
CREATE SOURCE t FROM KAFKA (topic = 't') FORMAT 'debezium-json'
CREATE SOURCE t FROM KAFKA (topic = 't') FORMAT whatever
CREATE SOURCE t FROM KAFKA (topic = 't', format = 'json', 'schema.registry.url' = 'u')
CREATE SOURCE t FROM KAFKA (topic = 't') USING SCHEMA REGISTRY (url = 'u')
CREATE SOURCE t FROM KAFKA (topic = 't') ON ERROR = skip
CREATE SOURCE t (a INT) WITH (connector = 'kafka') ON ERROR = 'dead_letter' WITH ('dead.letter.topic' = 'x', max.errors.per.second = 5)
CREATE SOURCE t (a INT) WITH (connector = 'kafka', 'max.poll.records' = 5000, 'include.metadata' = true, x = FALSE, y = -1, z = 0.5, w = 1e3)
CREATE SOURCE t (a INT) WITH (connector = 'kafka', brokers = 'b')
CREATE SOURCE t (a INT) WITH (connector = 'kafka', topic = 'it''s', 'a\\b' = 'c\\d', tab = '\t', 'quote\'d' = '"')
CREATE SOURCE t (a INT) WITH (connector = 'kafka', pw = '${KAFKA_PASSWORD:-x}', raw = r'a\b')
CREATE SOURCE t (a INT) WITH (connector = 'kafka', 'Quoted_Key-With.All' = 'v', topics.pattern = 'a.*')
CREATE SOURCE t (a BOOLEAN, b TINYINT, c SMALLINT, d INT, e INTEGER, f BIGINT, g LONG, h FLOAT, i REAL, j DOUBLE, k DOUBLE PRECISION) WITH (connector = 'kafka')
CREATE SOURCE t (a DECIMAL, b DECIMAL(5), c NUMERIC(12, 4), d STRING, e VARCHAR, f TEXT, g CHAR, h BINARY, i BYTES, j VARBINARY, k DATE, l TIMESTAMP, m TIMESTAMP_NTZ) WITH (connector = 'kafka')
CREATE SOURCE t (a ARRAY<STRING>, b ARRAY<ARRAY<BYTES>>, c MAP<STRING, BIGINT>, d STRUCT<a: INT NOT NULL, b: ARRAY<STRUCT<c DOUBLE, d: MAP<STRING, DATE>>>>) WITH (connector = 'kafka')
CREATE SOURCE t (a STRUCT<`odd name`: INT, `from`: STRING, timestamp: TIMESTAMP>, `b c` INT, `tick``s` INT) WITH (connector = 'kafka')
CREATE SOURCE t (timestamp TIMESTAMP, WATERMARK FOR timestamp AS timestamp - INTERVAL '5' SECOND) WITH (connector = 'kafka')
CREATE SOURCE t (date DATE NULL, order INT, `select` INT NOT NULL, watermark BIGINT, key STRING, value STRING, bytes BYTES) WITH (connector = 'kafka')
CREATE SOURCE t (ts TIMESTAMP, WATERMARK FOR ts) WITH (connector = 'kafka')
CREATE SOURCE t (ts TIMESTAMP, WATERMARK FOR ts AS ts) WITH (connector = 'kafka')
CREATE SOURCE t (WATERMARK FOR TS AS Ts - INTERVAL '1' MINUTE, ts TIMESTAMP) WITH (connector = 'kafka')
CREATE SOURCE t (ts TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL 5 SECONDS) WITH (connector = 'kafka')
CREATE SOURCE t (ts TIMESTAMP, WATERMARK FOR ts AS (ts - INTERVAL '5 minutes 30 seconds')) WITH (connector = 'kafka')
CREATE SOURCE t (ts TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL 5 MINUTES 30 SECONDS) WITH (connector = 'kafka')
CREATE SOURCE t (ts TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL '0.25' SECOND) WITH (connector = 'kafka')
CREATE SOURCE t (ts TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL '2' DAYS) WITH (connector = 'kafka')
CREATE SOURCE `odd name` (a INT) WITH (connector = 'kafka')
CREATE SOURCE `table` (a INT) WITH (connector = 'kafka')
CREATE SOURCE größe (ähm INT) WITH (connector = 'kafka')
create source table t (a int not null) with (connector = 'kafka') on error = Skip;
CREATE MATERIALIZED VIEW v AS SELECT * FROM t
CREATE MATERIALIZED VIEW IF NOT EXISTS v AS SELECT a, b FROM t WHERE a > 1
CREATE OR REPLACE MATERIALIZED VIEW v AS SELECT a FROM t EMIT CHANGES
CREATE MATERIALIZED VIEW v AS SELECT symbol, count(*) AS n FROM trades GROUP BY symbol EMIT CHANGES
CREATE MATERIALIZED VIEW v AS SELECT window_start, count(*) FROM t GROUP BY HOP(ts, INTERVAL '30' SECOND, INTERVAL '1' MINUTE) EMIT ON WINDOW CLOSE
CREATE MATERIALIZED VIEW v AS SELECT SESSION_START(ts, INTERVAL '5' MINUTE) AS s, SESSION_END(ts, INTERVAL '5' MINUTE) AS e, k, count(*) AS n FROM t GROUP BY SESSION(ts, INTERVAL '5' MINUTE), k EMIT ON WINDOW CLOSE
CREATE MATERIALIZED VIEW v AS WITH x AS (SELECT a FROM t) SELECT x.a, u.b FROM x JOIN u ON x.a = u.a EMIT CHANGES
CREATE MATERIALIZED VIEW v AS SELECT a FROM t UNION ALL SELECT a FROM u
CREATE MATERIALIZED VIEW v AS (SELECT a FROM t)
CREATE MATERIALIZED VIEW v AS SELECT a FROM t WHERE ts > now() - INTERVAL '1 day' EMIT CHANGES
CREATE MATERIALIZED VIEW v AS SELECT DISTINCT a, b FROM (SELECT * FROM t) AS q EMIT CHANGES
CREATE MATERIALIZED VIEW v AS SELECT listagg(x), CASE WHEN a THEN 'it''s' ELSE "x" END AS c FROM t -- the end
CREATE MATERIALIZED VIEW v AS SELECT window(ts, '1 minute').start, count(*) FROM t GROUP BY window(ts, '1 minute')
CREATE MATERIALIZED VIEW `my view` AS SELECT `odd name` FROM `odd table`
DROP SOURCE TABLE t
DROP SOURCE IF EXISTS t CASCADE
DROP SOURCE t RESTRICT
DROP MATERIALIZED VIEW v
DROP MATERIALIZED VIEW IF EXISTS v
DROP VIEW v CASCADE
DROP SINK s
DROP SINK IF EXISTS s
DROP SOURCE `odd name`
SHOW VIEWS
SHOW MATERIALIZED VIEWS
SHOW SINKS
show queries
SHOW CREATE SOURCE t
SHOW CREATE SOURCE TABLE t
SHOW CREATE VIEW v
SHOW CREATE MATERIALIZED VIEW v
DESC SOURCE t
DESCRIBE SOURCE TABLE t
DESCRIBE EXTENDED SOURCE t
DESCRIBE VIEW v
DESCRIBE MATERIALIZED VIEW v
DESC EXTENDED MATERIALIZED VIEW v
EXPLAIN SELECT * FROM t
EXPLAIN CREATE MATERIALIZED VIEW v AS SELECT a, count(*) FROM t GROUP BY a EMIT CHANGES
EXPLAIN CREATE SOURCE t (a INT) WITH (connector = 'kafka')
SELECT 1
SELECT * FROM v ORDER BY a DESC LIMIT 10
SELECT a, b AS c, count(*) FROM v AS w WHERE a IN (1, 2) GROUP BY a, b HAVING count(*) > 1
WITH x AS (SELECT 1 AS a) SELECT * FROM x
(SELECT a FROM t) UNION ALL (SELECT b FROM u) ORDER BY 1
SELECT a, row_number() OVER (PARTITION BY b ORDER BY c) FROM v
SELECT t.a.b['x'][0], m['k'], CAST(a AS STRING), a::INT, DATE '2024-01-01', X'ff' FROM t LATERAL VIEW explode(items) e AS item
SELECT /* a comment */ a FROM t -- another
VALUES (1, 'a'), (2, 'b')
SUBSCRIBE v
SUBSCRIBE TO v
subscribe `odd name`
CREATE SOURCE t (a STRUCT<bytes: BYTES NOT NULL, date: DATE>, b ARRAY<STRUCT<bytes BYTES>>, bytes BYTES NOT NULL) WITH (connector = 'kafka')
CREATE SOURCE t (a INT) FROM KAFKA (topic = 't') FORMAT JSON INCLUDE KEY AS k, PARTITION AS p, OFFSET AS o, TIMESTAMP AS sent, HEADERS AS h
CREATE SOURCE t (a INT) FROM KAFKA (topic = 't') FORMAT DEBEZIUM_JSON USING SCHEMA REGISTRY (url = 'u') INCLUDE KEY ON ERROR = 'skip'
CREATE SOURCE t (a INT) FROM KAFKA (topic = 't', 'include.offset.as' = 'o') INCLUDE TIMESTAMP AS `key`
CREATE SOURCE t (a INT, WATERMARK FOR sent AS sent - INTERVAL '5' SECOND) FROM KAFKA (topic = 't') INCLUDE TIMESTAMP AS sent
CREATE SOURCE TABLE t (a INT) WITH ('connector' = 'kafka', 'topic' = 't') INCLUDE HEADERS AS h
CREATE SOURCE TABLE t (a INT, WATERMARK FOR sent) WITH ('connector' = 'kafka', 'topic' = 't') INCLUDE TIMESTAMP AS sent
REPLAY DEAD LETTERS FROM t
replay dead letters from t where error_kind = 'TypeConversion' and partition in (1, 2) to 't-repaired' dry run
REPLAY DEAD LETTERS FROM t WHERE field IS NOT NULL OR NOT (offset BETWEEN 5 AND 9) TO t2 PATCH '{"price": 0, "it''s": null}'
REPLAY DEAD LETTERS FROM `odd name` DRY RUN
DISCARD DEAD LETTERS FROM t WHERE timestamp < TIMESTAMP '2026-01-01 00:00:00' REASON 'before the migration'
DISCARD DEAD LETTERS FROM t REASON 'all of it' DRY RUN
REOPEN DEAD LETTERS FROM t
REOPEN DEAD LETTERS FROM t WHERE state_reason = 'all of it' DRY RUN
RECOVER DEAD LETTERS FROM t
RECOVER DEAD LETTERS FROM t DRY RUN
SELECT d.error_kind, count(*) FROM forebay_catalog.dead_letters AS d JOIN laminar_catalog.source_errors e ON e.source_name = d.source WHERE d.offset > 5 GROUP BY 1
CREATE SOURCE "Orders" ("userId" BIGINT NOT NULL, "a ""b""" STRING, `x"y` INT, "select" STRUCT<"Mixed Case": INT>, ts TIMESTAMP, WATERMARK FOR "ts" AS "ts" - INTERVAL '5' SECOND) WITH (connector = 'kafka', "group.id" = 'g', "Quoted_Key" = "it's") INCLUDE KEY AS "theKey" ON ERROR = "skip" WITH ("dead.letter.topic" = "x")
CREATE SOURCE t FROM KAFKA (topic = 't') FORMAT "debezium-json"
CREATE MATERIALIZED VIEW "V" AS SELECT "userId", count(*) AS "N", 'text' AS "a""b" FROM "Orders" AS "o" WHERE "o"."userId" > 1 GROUP BY "userId" EMIT CHANGES
CREATE MATERIALIZED VIEW v AS WITH "X" AS (SELECT "a" FROM "t") SELECT "X"."a", t."s"."f" FROM "X" JOIN t ON "X"."a" = t."a"
CREATE MATERIALIZED VIEW v AS SELECT window_start, "k", sum("v") AS "total" FROM "t" GROUP BY TUMBLE("ts", INTERVAL '1' MINUTE), "k" EMIT ON WINDOW CLOSE
SELECT "a", 'it''s "b"', "c d" FROM "forebay_catalog"."dead_letters" ORDER BY "a"
REPLAY DEAD LETTERS FROM "Orders" WHERE "error_kind" = 'TypeConversion' TO "orders-2" PATCH "{}"
DISCARD DEAD LETTERS FROM "Orders" REASON "it's old"
DROP SOURCE "Orders"
SUBSCRIBE "V"
CREATE MATERIALIZED VIEW v AS SELECT window_start, window_end, window_time, k, count(*) AS n FROM TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' MINUTE) GROUP BY window_start, window_end, window_time, k EMIT ON WINDOW CLOSE
CREATE MATERIALIZED VIEW v AS SELECT w.window_start, count(*) AS n FROM HOP(t, "ts", INTERVAL '30 SECONDS', INTERVAL '1 MINUTE') AS w WHERE w.k = 'a' GROUP BY w.window_start, w.window_end EMIT CHANGES
CREATE MATERIALIZED VIEW v AS SELECT * FROM TABLE(TUMBLE(TABLE "T", DESCRIPTOR(ts), INTERVAL '1' MINUTE)) WHERE k IN (SELECT k FROM u)
SELECT window_start AS s, k, max(v) FROM TABLE(SESSION(TABLE t PARTITION BY (k), DESCRIPTOR(ts), INTERVAL '5' MINUTE)) GROUP BY 1, k
WITH x AS (SELECT * FROM t) SELECT * FROM TUMBLE(x, ts, INTERVAL '1' DAY) AS w JOIN HOP(t, ts, INTERVAL '1' MINUTE, INTERVAL '5' MINUTE) h ON w.a = h.a
DESCRIBE t
DESCRIBE EXTENDED "T"
START VIEW v
STOP VIEW "V"
PAUSE SOURCE t
PAUSE SOURCE "T"
RESUME SOURCE t
ALTER VIEW v DETACH
ALTER VIEW "V" DETACH
CREATE MATERIALIZED VIEW v WITH (start = 'now') AS SELECT a FROM t EMIT CHANGES
CREATE MATERIALIZED VIEW IF NOT EXISTS v WITH ('start' = '2026-01-31 12:00:00') AS WITH x AS (SELECT a FROM t) SELECT a FROM x
CREATE SOURCE t (k STRING, ts TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL '5' SECOND PER KEY k) WITH (connector = 'kafka')
CREATE SOURCE t (`my key` STRING, ts TIMESTAMP, WATERMARK FOR ts per key `my key`) WITH (connector = 'kafka')
CREATE SOURCE t (k STRING, per INT, WATERMARK FOR ts AS ts PER KEY K, ts TIMESTAMP) WITH (connector = 'kafka')
CREATE MATERIALIZED VIEW v AS SELECT window_start, count(*) AS n FROM s GROUP BY TUMBLE(ts, INTERVAL '1' MINUTE) ALLOW LATENESS INTERVAL '10' SECOND
CREATE MATERIALIZED VIEW v AS SELECT window_start, count(*) AS n FROM s GROUP BY TUMBLE(ts, INTERVAL '1' MINUTE) ALLOW LATENESS INTERVAL '10' SECOND LATE DATA TO late_rows EMIT CHANGES
CREATE MATERIALIZED VIEW v AS SELECT window_start, count(*) AS n FROM s GROUP BY TUMBLE(ts, INTERVAL '1' MINUTE) EMIT ON WINDOW CLOSE ALLOW LATENESS INTERVAL '1' HOUR LATE DATA TO DEAD LETTERS
CREATE MATERIALIZED VIEW v AS SELECT window_start, count(*) AS n FROM s GROUP BY TUMBLE(ts, INTERVAL '1' MINUTE) late data to `from` emit changes allow lateness '2 minutes'
CREATE MATERIALIZED VIEW v AS SELECT allow, lateness, late FROM data WHERE allow > lateness
CREATE MATERIALIZED VIEW v AS SELECT count(*) AS n FROM s AS late GROUP BY TUMBLE(ts, INTERVAL '1' MINUTE) LATE DATA TO dead
