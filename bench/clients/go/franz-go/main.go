// franz-go drives the client of that name.
package main

import (
	"context"
	"errors"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"twinshore/clients/talk"
)

type franz struct{ bootstrap string }

func main() { talk.Run(func(bootstrap string) talk.Client { return franz{bootstrap} }) }

func within() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), talk.Within)
	time.AfterFunc(talk.Within, cancel)
	return ctx
}

func (f franz) client(more ...kgo.Opt) (*kgo.Client, error) {
	return kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(f.bootstrap)}, more...)...)
}

func (f franz) admin() *kadm.Client {
	client, err := f.client()
	if err != nil {
		panic(err)
	}
	return kadm.NewClient(client)
}

func (f franz) Refusal(err error) bool {
	var told *kerr.Error
	return errors.As(err, &told)
}

func (f franz) Look() ([]string, int, error) {
	told, err := f.admin().Metadata(within())
	return told.Topics.Names(), len(told.Brokers), err
}

func (f franz) Describe() (string, int, error) {
	told, err := f.admin().BrokerMetadata(within())
	return told.Cluster, len(told.Brokers), err
}

func (f franz) Create(topic string) error {
	_, err := f.admin().CreateTopic(within(), 1, 1, nil, topic)
	return err
}

func (f franz) Ends(topics []string) (map[string]int64, error) {
	told, err := f.admin().ListEndOffsets(within(), topics...)
	found := map[string]int64{}
	told.Each(func(one kadm.ListedOffset) { found[one.Topic] += one.Offset })
	return found, errors.Join(err, told.Error())
}

func (f franz) Groups() ([]string, error) {
	told, err := f.admin().ListGroups(within())
	return told.Groups(), err
}

func (f franz) Place(group, topic string) (int64, error) {
	told, err := f.admin().FetchOffsets(within(), group)
	if err != nil {
		return -1, err
	}
	one, there := told.Lookup(topic, 0)
	if !there {
		return -1, nil
	}
	return one.At, one.Err
}

func records(topic string, values []string) []*kgo.Record {
	made := make([]*kgo.Record, len(values))
	for i, value := range values {
		made[i] = &kgo.Record{Topic: topic, Key: []byte(value), Value: []byte(value)}
	}
	return made
}

func (f franz) Produce(topic, acks string, idempotent bool, values []string) error {
	asked := map[string]kgo.Acks{"0": kgo.NoAck(), "1": kgo.LeaderAck(), "all": kgo.AllISRAcks()}
	settings := []kgo.Opt{kgo.RequiredAcks(asked[acks])}
	if !idempotent {
		settings = append(settings, kgo.DisableIdempotentWrite())
	}
	client, err := f.client(settings...)
	if err != nil {
		return err
	}
	defer client.Close()
	return client.ProduceSync(within(), records(topic, values)...).FirstErr()
}

func (f franz) Read(topic string, seconds float64, wanted []string) ([]string, error) {
	client, err := f.client(kgo.ConsumeTopics(topic), kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	if err != nil {
		return nil, err
	}
	defer client.Close()
	return talk.Until(seconds, wanted, func(wait time.Duration) ([]string, error) { return poll(client, wait) })
}

func poll(client *kgo.Client, wait time.Duration) ([]string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), wait)
	defer cancel()
	told, values := client.PollFetches(ctx), []string{}
	told.EachRecord(func(one *kgo.Record) { values = append(values, string(one.Value)) })
	for _, one := range told.Errors() {
		if !errors.Is(one.Err, context.DeadlineExceeded) {
			return values, one.Err
		}
	}
	return values, nil
}

func (f franz) Transact(topic, group string, place int64, commit bool, values []string) error {
	client, err := f.client(kgo.TransactionalID(group + "-writer"))
	if err != nil {
		return err
	}
	defer client.Close()
	if err := client.BeginTransaction(); err != nil {
		return err
	}
	if err := client.ProduceSync(within(), records(topic, values)...).FirstErr(); err != nil {
		return errors.Join(err, client.EndTransaction(within(), kgo.TryAbort))
	}
	if err := addPlace(client, topic, group, place); err != nil {
		return errors.Join(err, client.EndTransaction(within(), kgo.TryAbort))
	}
	return client.EndTransaction(within(), kgo.TransactionEndTry(commit))
}

// addPlace is what a session of the client does with what it has read.
func addPlace(client *kgo.Client, topic, group string, place int64) error {
	id, epoch, err := client.ProducerID(within())
	if err != nil {
		return err
	}
	add := kmsg.NewPtrAddOffsetsToTxnRequest()
	add.TransactionalID, add.Group, add.ProducerID, add.ProducerEpoch = group+"-writer", group, id, epoch
	added, err := add.RequestWith(within(), client)
	if err == nil {
		err = kerr.ErrorForCode(added.ErrorCode)
	}
	if err != nil {
		return err
	}
	part := kmsg.NewTxnOffsetCommitRequestTopicPartition()
	part.Offset = place
	named := kmsg.NewTxnOffsetCommitRequestTopic()
	named.Topic, named.Partitions = topic, append(named.Partitions, part)
	asked := kmsg.NewPtrTxnOffsetCommitRequest()
	asked.TransactionalID, asked.Group, asked.ProducerID, asked.ProducerEpoch = group+"-writer", group, id, epoch
	asked.Topics = append(asked.Topics, named)
	told, err := asked.RequestWith(within(), client)
	if err != nil {
		return err
	}
	return kerr.ErrorForCode(told.Topics[0].Partitions[0].ErrorCode)
}

type member struct {
	talk.Held
	client *kgo.Client
}

func (f franz) Member(group, way, instance string, topics []string) (talk.Member, error) {
	made := &member{}
	settings := []kgo.Opt{
		kgo.ConsumerGroup(group), kgo.ConsumeTopics(topics...), kgo.DisableAutoCommit(),
		kgo.SessionTimeout(10 * time.Second), kgo.HeartbeatInterval(time.Second / 2),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.OnPartitionsAssigned(made.hears(true)), kgo.OnPartitionsRevoked(made.hears(false)),
		kgo.OnPartitionsLost(made.hears(false)),
	}
	switch way {
	case "eager":
		settings = append(settings, kgo.Balancers(kgo.RoundRobinBalancer()))
	case "cooperative":
		settings = append(settings, kgo.Balancers(kgo.CooperativeStickyBalancer()))
	default:
		settings = append(settings, kgo.ServerSideBalancer())
	}
	if instance != "" {
		settings = append(settings, kgo.InstanceID(instance))
	}
	client, err := f.client(settings...)
	made.client = client
	return made, err
}

func (m *member) hears(gets bool) func(context.Context, *kgo.Client, map[string][]int32) {
	return func(_ context.Context, _ *kgo.Client, told map[string][]int32) {
		for topic, parts := range told {
			for _, part := range parts {
				m.Set(topic, part, gets)
			}
		}
	}
}

func (m *member) Poll(wait time.Duration) ([]string, error) { return poll(m.client, wait) }

func (m *member) Commit() error { return m.client.CommitUncommittedOffsets(within()) }

func (m *member) Close() { m.client.Close() }

type writer struct {
	client        *kgo.Client
	topic         string
	transactional bool
}

func (f franz) Writer(topic, transactional string) (talk.Writer, error) {
	settings := []kgo.Opt{}
	if transactional != "" {
		settings = append(settings, kgo.TransactionalID(transactional))
	}
	client, err := f.client(settings...)
	return writer{client, topic, transactional != ""}, err
}

func (w writer) Write(values []string) error {
	if !w.transactional {
		return w.client.ProduceSync(within(), records(w.topic, values)...).FirstErr()
	}
	if err := w.client.BeginTransaction(); err != nil {
		return err
	}
	err := w.client.ProduceSync(within(), records(w.topic, values)...).FirstErr()
	if err != nil {
		return errors.Join(err, w.client.EndTransaction(within(), kgo.TryAbort))
	}
	if err := w.client.EndTransaction(within(), kgo.TryCommit); err != nil {
		return errors.Join(err, w.client.EndTransaction(within(), kgo.TryAbort))
	}
	return nil
}

func (w writer) Close() { w.client.Close() }
