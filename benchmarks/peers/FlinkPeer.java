import java.io.BufferedReader;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

import org.apache.flink.configuration.Configuration;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.JsonNode;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.ObjectMapper;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.table.api.StatementSet;
import org.apache.flink.table.api.TableResult;
import org.apache.flink.table.api.bridge.java.StreamTableEnvironment;
import org.apache.flink.types.Row;
import org.apache.flink.types.RowKind;
import org.apache.flink.util.CloseableIterator;

/**
 * Runs Flink SQL in a mini cluster inside this JVM, job after job.
 *
 * The first line of standard input is a map of settings; each further line has "statements" to execute and then
 * either a "query" whose rows, once it has ended, are the answer, or "inserts", which are one statement set: it is
 * waited for if "await" is true, and otherwise goes on. The answer is one line of JSON, {"rows": [[...], ...]} or
 * {"error": "..."}.
 */
public final class FlinkPeer {
    private static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] args) throws Exception {
        PrintStream answers = new PrintStream(new FileOutputStream(FileDescriptor.out), true, "UTF-8");
        System.setOut(System.err);
        BufferedReader questions = new BufferedReader(new InputStreamReader(System.in, "UTF-8"));
        Configuration settings = new Configuration();
        JSON.readTree(questions.readLine())
            .fields()
            .forEachRemaining(entry -> settings.setString(entry.getKey(), entry.getValue().asText()));
        answers.println("{\"ready\": true}");
        for (String line = questions.readLine(); line != null; line = questions.readLine()) {
            Map<String, Object> answer = new LinkedHashMap<>();
            try {
                answer.put("rows", run(settings, JSON.readTree(line)));
            } catch (Exception error) {
                error.printStackTrace();
                answer.put("error", innermost(error).toString());
            }
            answers.println(JSON.writeValueAsString(answer));
        }
        System.exit(0); // threads of the mini cluster would keep the JVM alive
    }

    private static List<List<Object>> run(Configuration settings, JsonNode job) throws Exception {
        StreamExecutionEnvironment env = StreamExecutionEnvironment.getExecutionEnvironment(settings);
        StreamTableEnvironment tables = StreamTableEnvironment.create(env);
        for (JsonNode statement : job.get("statements")) {
            tables.executeSql(statement.asText());
        }
        if (job.has("inserts")) {
            insert(tables, job);
            return List.of();
        }
        TableResult result = tables.executeSql(job.get("query").asText());
        List<List<Object>> rows = new ArrayList<>();
        try (CloseableIterator<Row> changes = result.collect()) {
            while (changes.hasNext()) {
                apply(rows, changes.next());
            }
        }
        return rows;
    }

    private static void insert(StreamTableEnvironment tables, JsonNode job) throws Exception {
        StatementSet set = tables.createStatementSet();
        for (JsonNode insert : job.get("inserts")) {
            set.addInsertSql(insert.asText());
        }
        TableResult running = set.execute();
        if (job.path("await").asBoolean()) {
            running.await();
        }
    }

    /** An update replaces the row that it takes back. */
    private static void apply(List<List<Object>> rows, Row change) {
        List<Object> row = new ArrayList<>();
        for (int i = 0; i < change.getArity(); i++) {
            row.add(change.getField(i));
        }
        RowKind kind = change.getKind();
        if (kind == RowKind.UPDATE_BEFORE || kind == RowKind.DELETE) {
            rows.remove(row);
        } else {
            rows.add(row);
        }
    }

    private static Throwable innermost(Throwable error) {
        return error.getCause() == null ? error : innermost(error.getCause());
    }
}
