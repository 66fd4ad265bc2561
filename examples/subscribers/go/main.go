// Command subscriber prints Paddlewheel's facts, one line of JSON each: a complete consumer to start your own from.
//
// It resumes where it stopped (a durable pull consumer), acknowledges after the effect, keeps the order of each object
// across crashes, and skips facts it has already handled, by ce-id.
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
	"strings"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const (
	// inbox is the prefix on which a subscriber may receive replies.
	inbox = "_INBOX_subscriber"
	// pause is the delay after a failure.
	pause = time.Second
	// timeout bounds each request to the bus.
	timeout = 5 * time.Second
)

// errEffect ends the program: waiting does not help, and nothing was acknowledged.
var errEffect = errors.New("cannot write the fact")

type options struct {
	server, tlsDir, tokenFile, user, stream, filter, durable, out string
	ackWait                                      time.Duration
}

func main() {
	var o options
	flag.StringVar(&o.server, "server", fallback("NATS_URL", nats.DefaultURL), "URL of the bus (NATS_URL)")
	flag.StringVar(&o.tlsDir, "tls-dir", os.Getenv("NATS_TLS_DIR"),
		"folder with ca.crt, as in ConfigMap bus-ca (NATS_TLS_DIR)")
	flag.StringVar(&o.tokenFile, "token-file", os.Getenv("NATS_TOKEN_FILE"),
		"file with a service-account token (NATS_TOKEN_FILE)")
	flag.StringVar(&o.user, "user", fallback("NATS_TEAM", "subscriber"), "team to connect as (NATS_TEAM)")
	flag.StringVar(&o.stream, "stream", "PW_JOBS", "stream that stores the facts")
	flag.StringVar(&o.filter, "filter", "pw.evt.jobs.>", "subject to filter the facts by, wildcards allowed")
	flag.StringVar(&o.durable, "durable", "example", "name under which the bus stores your position")
	flag.StringVar(&o.out, "out", "", "file to append the facts to; empty means standard output")
	flag.DurationVar(&o.ackWait, "ack-wait", 30*time.Second,
		"time after which an unacknowledged fact is redelivered")
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

// run handles facts until the context ends; it gives up only when waiting does not help.
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
			// The bus is unreachable, or its stream does not exist yet or was recreated: resume from our position.
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
		dial = append(dial, nats.RootCAs(filepath.Join(o.tlsDir, "ca.crt")))
	}
	if o.tokenFile != "" {
		// Read for each connection, because the kubelet renews it.
		dial = append(dial, nats.UserInfoHandler(func() (string, string) {
			token, err := os.ReadFile(o.tokenFile)
			if err != nil {
				log.Print(err)
			}
			return o.user, strings.TrimSpace(string(token))
		}))
	}
	return dial
}

// follow handles facts one by one from the durable consumer, which it creates if missing.
func follow(ctx context.Context, js jetstream.JetStream, o options, ledger *ledger) error {
	within, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	consumer, err := js.CreateOrUpdateConsumer(within, o.stream, jetstream.ConsumerConfig{
		// No Paddlewheel service uses this prefix.
		Durable:       "sub-" + o.durable,
		FilterSubject: o.filter,
		AckPolicy:     jetstream.AckExplicitPolicy,
		AckWait:       o.ackWait,
		// Otherwise a fact left unacknowledged by a crash would be redelivered after its successors. If you do not need
		// order, raise the limit: one at a time costs two round trips per fact.
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

// next waits for one message; nil means that there is none yet.
func next(ctx context.Context, consumer jetstream.Consumer) (jetstream.Msg, error) {
	within, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	message, err := consumer.Next(jetstream.FetchContext(within))
	if err == nil || ctx.Err() != nil {
		return message, ctx.Err()
	}
	if errors.Is(err, nats.ErrTimeout) || errors.Is(err, context.DeadlineExceeded) {
		// Either there is nothing new, or the consumer was deleted with its stream: ask the server.
		again, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		_, err = consumer.Info(again)
	}
	return nil, err
}

// handle settles one message: the effect first, then the acknowledgement.
func handle(ctx context.Context, message jetstream.Msg, ledger *ledger) error {
	fact, err := read(message)
	if err != nil {
		// It would be redelivered forever: log it and terminate it.
		log.Printf("%s skipped: %v", message.Subject(), err)
		return message.TermWithReason(err.Error())
	}
	if err := ledger.Add(fact); err != nil {
		return fmt.Errorf("%w: %w", errEffect, err)
	}
	within, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if err := message.DoubleAck(within); err != nil {
		// It will be redelivered, and the ledger will skip it.
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
