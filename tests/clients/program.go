// What the SDK for Go does with a node: it says as JSON what it found, and test_go.py judges.
// Endpoint, region and keys are in the environment.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"os"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
)

func must[T any](value T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return value
}

func main() {
	ctx := context.Background()
	client := sqs.NewFromConfig(must(config.LoadDefaultConfig(ctx)))
	found := map[string]any{}

	// the SDK itself checks the MD5 of what it sends and receives
	url := must(client.CreateQueue(ctx, &sqs.CreateQueueInput{QueueName: aws.String("jobs")})).QueueUrl
	must(client.SendMessage(ctx, &sqs.SendMessageInput{
		QueueUrl:    url,
		MessageBody: aws.String("Grüße €"),
		MessageAttributes: map[string]types.MessageAttributeValue{
			"colour": {DataType: aws.String("String"), StringValue: aws.String("grün")},
			"photo":  {DataType: aws.String("Binary"), BinaryValue: []byte{0, 1, 255}},
		},
	}))
	got := must(client.ReceiveMessage(ctx, &sqs.ReceiveMessageInput{
		QueueUrl:              url,
		WaitTimeSeconds:       5,
		MessageAttributeNames: []string{"All"},
	})).Messages
	found["body"] = got[0].Body
	found["photo"] = got[0].MessageAttributes["photo"].BinaryValue
	must(client.DeleteMessage(ctx, &sqs.DeleteMessageInput{
		QueueUrl: url, ReceiptHandle: got[0].ReceiptHandle,
	}))

	// a batch
	entries := []types.SendMessageBatchRequestEntry{}
	for n := range 10 {
		id := fmt.Sprint(n)
		entries = append(entries, types.SendMessageBatchRequestEntry{Id: &id, MessageBody: &id})
	}
	must(client.SendMessageBatch(ctx, &sqs.SendMessageBatchInput{QueueUrl: url, Entries: entries}))
	deleted := 0
	for deleted < len(entries) {
		batch := []types.DeleteMessageBatchRequestEntry{}
		answer := must(client.ReceiveMessage(ctx, &sqs.ReceiveMessageInput{
			QueueUrl: url, MaxNumberOfMessages: 10, WaitTimeSeconds: 5,
		}))
		for _, message := range answer.Messages {
			batch = append(batch, types.DeleteMessageBatchRequestEntry{
				Id: message.Body, ReceiptHandle: message.ReceiptHandle,
			})
		}
		done := must(client.DeleteMessageBatch(ctx, &sqs.DeleteMessageBatchInput{
			QueueUrl: url, Entries: batch,
		}))
		deleted += len(done.Successful)
	}
	found["deleted"] = deleted

	// pages
	for n := range 5 {
		must(client.CreateQueue(ctx, &sqs.CreateQueueInput{QueueName: aws.String(fmt.Sprint("many-", n))}))
	}
	pages := []int{}
	pager := sqs.NewListQueuesPaginator(client, &sqs.ListQueuesInput{
		QueueNamePrefix: aws.String("many-"), MaxResults: aws.Int32(2),
	})
	for pager.HasMorePages() {
		pages = append(pages, len(must(pager.NextPage(ctx)).QueueUrls))
	}
	found["pages"] = pages

	// errors are of the SDK's own types
	var missing *types.QueueDoesNotExist
	_, err := client.GetQueueUrl(ctx, &sqs.GetQueueUrlInput{QueueName: aws.String("nowhere")})
	found["missing"] = errors.As(err, &missing)
	var invalid *types.ReceiptHandleIsInvalid
	_, err = client.DeleteMessage(ctx, &sqs.DeleteMessageInput{
		QueueUrl: url, ReceiptHandle: aws.String("nonsense"),
	})
	found["invalid"] = errors.As(err, &invalid)

	if err := json.NewEncoder(os.Stdout).Encode(found); err != nil {
		log.Fatal(err)
	}
}
