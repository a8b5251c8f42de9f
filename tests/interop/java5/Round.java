import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Set;
import java.util.concurrent.Callable;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.client.apis.ClientConfiguration;
import org.apache.rocketmq.client.apis.ClientServiceProvider;
import org.apache.rocketmq.client.apis.consumer.ConsumeResult;
import org.apache.rocketmq.client.apis.consumer.FilterExpression;
import org.apache.rocketmq.client.apis.consumer.PushConsumer;
import org.apache.rocketmq.client.apis.consumer.SimpleConsumer;
import org.apache.rocketmq.client.apis.message.MessageView;
import org.apache.rocketmq.client.apis.producer.Producer;

/**
 * Java's client of RocketMQ 5, once: `Round ENDPOINTS TOPIC COUNT`. A line of text for each event. Behind "ready" each
 * line that it reads is sent as a message, as often as it takes, and received.
 */
public class Round {
    private static final ClientServiceProvider PROVIDER = ClientServiceProvider.loadService();

    public static void main(String[] args) throws Exception {
        String topic = args[1];
        int count = Integer.parseInt(args[2]);
        ClientConfiguration configuration =
                ClientConfiguration.newBuilder().setEndpoints(args[0]).enableSsl(false).build();
        FilterExpression all = FilterExpression.SUB_ALL;

        Producer producer = PROVIDER.newProducerBuilder()
                .setClientConfiguration(configuration).setTopics(topic).build();
        for (int number = 0; number < count; number++) {
            producer.send(PROVIDER.newMessageBuilder().setTopic(topic).setTag("java").setKeys("k" + number)
                    .addProperty("number", "" + number)
                    .setBody(("body-" + number).getBytes(StandardCharsets.UTF_8)).build());
        }
        System.out.println("sent " + count);

        Set<String> refused = ConcurrentHashMap.newKeySet();
        PushConsumer push = PROVIDER.newPushConsumerBuilder().setClientConfiguration(configuration)
                .setConsumerGroup(topic + "-push")
                .setSubscriptionExpressions(Collections.singletonMap(topic, all))
                .setMessageListener(message -> {
                    tell("pushed", message);
                    boolean first = text(message).equals("body-0") && refused.add(text(message));
                    return first ? ConsumeResult.FAILURE : ConsumeResult.SUCCESS;
                }).build();

        SimpleConsumer simple = PROVIDER.newSimpleConsumerBuilder().setClientConfiguration(configuration)
                .setConsumerGroup(topic + "-simple").setAwaitDuration(Duration.ofSeconds(5))
                .setSubscriptionExpressions(Collections.singletonMap(topic, all)).build();
        for (int received = 0; received < count; ) {
            received += receive(simple).size();
        }
        System.out.println("ready");

        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null && !line.isEmpty(); line = lines.readLine()) {
            byte[] body = line.getBytes(StandardCharsets.UTF_8);
            asOftenAsItTakes(() -> producer.send(PROVIDER.newMessageBuilder().setTopic(topic).setBody(body).build()));
            System.out.println("sent " + line);
            while (!asOftenAsItTakes(() -> receive(simple)).contains(line)) {
                Thread.yield();
            }
        }
        push.close();
        simple.close();
        producer.close();
        System.out.println("end");
    }

    private static List<String> receive(SimpleConsumer simple) throws Exception {
        List<String> bodies = new ArrayList<>();
        for (MessageView message : simple.receive(32, Duration.ofSeconds(30))) {
            simple.ack(message);
            tell("received", message);
            bodies.add(text(message));
        }
        return bodies;
    }

    private static <T> T asOftenAsItTakes(Callable<T> work) throws Exception {
        while (true) {
            try {
                return work.call();
            } catch (Exception error) {
                System.err.println(error);
                Thread.sleep(200);
            }
        }
    }

    private static void tell(String what, MessageView message) {
        System.out.println(String.join(" ", what, text(message), message.getTag().orElse("-"),
                String.join(",", message.getKeys()), "" + message.getProperties(),
                "" + message.getDeliveryAttempt()));
    }

    private static String text(MessageView message) {
        return StandardCharsets.UTF_8.decode(message.getBody()).toString();
    }
}
