// Command subscriber prints Paddlewheel's facts, one line of JSON each: a whole consumer to start your own from.
//
// It resumes where it was (a durable pull consumer), acknowledges after the effect, keeps the order of each object
// over crashes, and drops what it has handled already, by ce-id.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const (
	// inbox is where the subscriber's certificate may receive answers.
	inbox = "_INBOX_subscriber"
	// pause is how long the program waits after a failure.
	pause = time.Second
	// timeout bounds each request to the bus.
	timeout = 5 * time.Second
)

// errEffect ends the program: no waiting mends it, and nothing was acknowledged.
var errEffect = errors.New("the fact could not be written down")

type options struct {
	server, tlsDir, stream, filter, durable, out string
	ackWait                                      time.Duration
}

func main() {
	var o options
	flag.StringVar(&o.server, "server", fallback("NATS_URL", nats.DefaultURL), "address of the bus (NATS_URL)")
	flag.StringVar(&o.tlsDir, "tls-dir", os.Getenv("NATS_TLS_DIR"),
		"folder with ca.crt, tls.crt and tls.key, as in Secret nats-tls-subscriber (NATS_TLS_DIR)")
	flag.StringVar(&o.stream, "stream", "PW_JOBS", "stream that keeps the facts")
	flag.StringVar(&o.filter, "filter", "pw.evt.jobs.>", "which of them: a subject, wildcards allowed")
	flag.StringVar(&o.durable, "durable", "example", "name under which the bus remembers where you are")
	flag.StringVar(&o.out, "out", "", "file to append the facts to; empty = standard output")
	flag.DurationVar(&o.ackWait, "ack-wait", 30*time.Second,
		"after how long a fact comes again that a crash left unacknowledged")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, o); err != nil {
		log.Fatal(err)
	}
}

func fallback(name, otherwise string) string {
	if value := os.Getenv(name); value != "" {
		return value
	}
	return otherwise
}

// run handles facts until the context ends; it gives up only on what no waiting mends.
func run(ctx context.Context, o options) error {
	ledger, err := openLedger(o.out)
	if err != nil {
		return err
	}
	defer ledger.Close()
	connection, err := nats.Connect(o.server, dialOptions(o)...)
	if err != nil {
		return fmt.Errorf("%s: %w", o.server, err)
	}
	defer connection.Close()
	js, err := jetstream.New(connection)
	if err != nil {
		return err
	}
	for ctx.Err() == nil {
		err := follow(ctx, js, o, ledger)
		if errors.Is(err, errEffect) {
			return err
		}
		if err != nil && ctx.Err() == nil {
			// The bus is away, its stream is not there yet, or it was made anew: begin again where we are.
			log.Print(err)
			sleep(ctx, pause)
		}
	}
	return nil
}

func dialOptions(o options) []nats.Option {
	dial := []nats.Option{
		nats.Name(o.durable),
		nats.CustomInboxPrefix(inbox),
		nats.RetryOnFailedConnect(true),
		nats.MaxReconnects(-1),
		nats.ReconnectWait(pause),
	}
	if o.tlsDir != "" {
		at := func(name string) string { return filepath.Join(o.tlsDir, name) }
		dial = append(dial, nats.RootCAs(at("ca.crt")), nats.ClientCert(at("tls.crt"), at("tls.key")))
	}
	return dial
}

// follow takes one fact after the other from the durable consumer, made if it is missing.
func follow(ctx context.Context, js jetstream.JetStream, o options, ledger *ledger) error {
	within, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	consumer, err := js.CreateOrUpdateConsumer(within, o.stream, jetstream.ConsumerConfig{
		// No service of Paddlewheel has a name that begins so.
		Durable:       "sub-" + o.durable,
		FilterSubject: o.filter,
		AckPolicy:     jetstream.AckExplicitPolicy,
		AckWait:       o.ackWait,
		// What a crash leaves unacknowledged would otherwise come after its followers. If order does not matter to
		// you, raise it: with one at a time each fact costs two round trips.
		MaxAckPending: 1,
	})
	if err != nil {
		return fmt.Errorf("consumer on %s: %w", o.stream, err)
	}
	for ctx.Err() == nil {
		message, err := next(ctx, consumer)
		if err != nil {
			return fmt.Errorf("next fact: %w", err)
		}
		if message == nil {
			continue
		}
		if err := handle(ctx, message, ledger); err != nil {
			return err
		}
	}
	return nil
}

// next waits for one message; nil = there is none yet.
func next(ctx context.Context, consumer jetstream.Consumer) (jetstream.Msg, error) {
	within, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	message, err := consumer.Next(jetstream.FetchContext(within))
	if err == nil || ctx.Err() != nil {
		return message, ctx.Err()
	}
	if errors.Is(err, nats.ErrTimeout) || errors.Is(err, context.DeadlineExceeded) {
		// Nothing new, or the consumer is gone with its stream: only asking tells.
		again, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		_, err = consumer.Info(again)
	}
	return nil, err
}

// handle brings one message to its end: the effect first, the acknowledgement after it.
func handle(ctx context.Context, message jetstream.Msg, ledger *ledger) error {
	fact, err := read(message)
	if err != nil {
		// It would come for ever: say so and let it go.
		log.Printf("%s skipped: %v", message.Subject(), err)
		return message.TermWithReason(err.Error())
	}
	if err := ledger.Add(fact); err != nil {
		return fmt.Errorf("%w: %w", errEffect, err)
	}
	within, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if err := message.DoubleAck(within); err != nil {
		// It comes again, and the ledger knows it.
		return fmt.Errorf("acknowledging %s: %w", fact.ID, err)
	}
	return nil
}

func sleep(ctx context.Context, how time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(how):
	}
}
