// What the SDK for Java does with a node: it prints what it found, and test_java.py judges.
// The endpoint is the only argument; region and keys are in the environment.

import java.net.URI;
import java.util.Map;
import java.util.stream.IntStream;
import software.amazon.awssdk.core.SdkBytes;
import software.amazon.awssdk.services.sqs.SqsAsyncClient;
import software.amazon.awssdk.services.sqs.SqsClient;
import software.amazon.awssdk.services.sqs.model.MessageAttributeValue;
import software.amazon.awssdk.services.sqs.model.QueueDoesNotExistException;
import software.amazon.awssdk.services.sqs.model.SendMessageBatchRequestEntry;

class Program {
    public static void main(String[] args) {
        var endpoint = URI.create(args[0]);
        try (var sqs = SqsClient.builder().endpointOverride(endpoint).build();
                var later = SqsAsyncClient.builder().endpointOverride(endpoint).build()) {
            var url = sqs.createQueue(q -> q.queueName("jobs")).queueUrl();

            // the SDK itself checks the MD5 of what it sends and receives
            var photo = SdkBytes.fromByteArray(new byte[] {0, 1, -1});
            sqs.sendMessage(m -> m.queueUrl(url).messageBody("Grüße €").messageAttributes(Map.of(
                    "colour", MessageAttributeValue.builder().dataType("String").stringValue("grün").build(),
                    "photo", MessageAttributeValue.builder().dataType("Binary").binaryValue(photo).build())));
            var got = sqs.receiveMessage(r -> r.queueUrl(url).waitTimeSeconds(5).messageAttributeNames("All"))
                    .messages().get(0);
            say("body", got.body().equals("Grüße €"));
            say("photo", got.messageAttributes().get("photo").binaryValue().equals(photo));
            sqs.deleteMessage(d -> d.queueUrl(url).receiptHandle(got.receiptHandle()));

            // a question of the asynchronous client waits, and is answered when something comes
            var waiting = later.receiveMessage(r -> r.queueUrl(url).waitTimeSeconds(20).maxNumberOfMessages(10));
            sqs.sendMessageBatch(b -> b.queueUrl(url).entries(IntStream.range(0, 10)
                    .mapToObj(n -> SendMessageBatchRequestEntry.builder().id("e" + n).messageBody("" + n).build())
                    .toList()));
            say("awaited", waiting.join().messages().size());

            IntStream.range(0, 5).forEach(n -> sqs.createQueue(q -> q.queueName("many-" + n)));
            var pages = sqs.listQueuesPaginator(l -> l.queueNamePrefix("many-").maxResults(2));
            say("pages", pages.stream().map(page -> page.queueUrls().size()).toList());

            try {
                sqs.getQueueUrl(q -> q.queueName("nowhere"));
            } catch (QueueDoesNotExistException refused) {
                say("refused", refused.awsErrorDetails().errorCode());
            }
        }
    }

    static void say(String what, Object found) {
        System.out.println(what + ": " + found);
    }
}
