// Command pause is two programs in one static file, named by how it is called.
//
// /pause holds a pod's namespaces open and reaps its orphans.
//
// /gate --ask URL waits until a GET of URL answers 200, and until every name in that answer resolves. 202 means that the pod has
// to wait; such an answer may take half a minute. With --fallback 30s it also passes when no GET was answered 200 or 202 for so
// long, once the hosts of --resolve resolve, or after ten times that. It writes why into the container's termination message.
// --resolve is a list of endpoints, separated by commas.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

const (
	again        = time.Second
	poll         = 500 * time.Millisecond
	answer       = 60 * time.Second
	dial         = 10 * time.Second
	resolveFor   = 10 * time.Second
	longestNames = 4 << 20
	// Without an answer the names are those of the start: a pod that is wanted no more never gets one.
	resolveFallbacks = 10

	terminationMessage = "/dev/termination-log"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if filepath.Base(os.Args[0]) == "gate" {
		os.Exit(gate(ctx, os.Args[1:]))
	}
	pause(ctx)
}

// pause returns on SIGTERM or SIGINT. Process 1 of a shared process namespace inherits orphans, so it reaps them.
func pause(ctx context.Context) {
	children := make(chan os.Signal, 16)
	signal.Notify(children, syscall.SIGCHLD)
	for {
		select {
		case <-ctx.Done():
			return
		case <-children:
			reap()
		}
	}
}

func reap() {
	for {
		pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil)
		if err != nil || pid <= 0 {
			return
		}
	}
}

// gate returns the exit code.
func gate(ctx context.Context, args []string) int {
	w, err := parse(args)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	for !w.isOver(ctx) {
		if !pauseFor(ctx, again) {
			return 143
		}
	}
	return 0
}

// wait is the state of a gate.
type wait struct {
	url       string
	fallback  time.Duration
	endpoints string

	client   *http.Client
	answered time.Time
	resolved map[string]bool
	reason   string
}

func parse(args []string) (*wait, error) {
	w := &wait{answered: time.Now(), resolved: map[string]bool{}}
	flags := flag.NewFlagSet("gate", flag.ContinueOnError)
	flags.StringVar(&w.url, "ask", "", "the URL to ask")
	flags.DurationVar(&w.fallback, "fallback", 0, "pass without an answer after this time; 0 means never")
	flags.StringVar(&w.endpoints, "resolve", "", "hosts that must resolve when there is no answer")
	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	if w.url == "" || w.fallback < 0 || flags.NArg() > 0 {
		return nil, errors.New("usage: gate --ask URL [--fallback DURATION] [--resolve HOST:PORT,...]")
	}
	// It asks without the proxy of the environment, which would not know an address of the cluster.
	dialer := &net.Dialer{Timeout: dial}
	w.client = &http.Client{
		Timeout:   answer,
		Transport: &http.Transport{DisableKeepAlives: true, DialContext: dialer.DialContext},
	}
	return w, nil
}

// isOver asks once.
func (w *wait) isOver(ctx context.Context) bool {
	names, err := w.ask(ctx)
	if err == nil {
		return w.resolve(ctx, names)
	}
	w.log(err.Error())
	if w.fallback == 0 || time.Since(w.answered) < w.fallback || ctx.Err() != nil {
		return false
	}
	message := fmt.Sprintf("no answer for %v: %v", w.fallback, err)
	if !w.resolve(ctx, hosts(w.endpoints)) {
		if time.Since(w.answered) < resolveFallbacks*w.fallback || ctx.Err() != nil {
			return false
		}
		message += "; " + w.reason
	}
	report(message)
	return true
}

// ask returns the names that have to resolve before the pod starts, and an error when the pod may not start.
func (w *wait) ask(ctx context.Context) ([]string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, w.url, nil)
	if err != nil {
		return nil, err
	}
	response, err := w.client.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	if response.StatusCode == http.StatusAccepted {
		w.answered = time.Now()
	}
	if response.StatusCode != http.StatusOK {
		return nil, errors.New(response.Status)
	}
	body, err := io.ReadAll(io.LimitReader(response.Body, longestNames))
	if err != nil {
		return nil, err
	}
	w.answered = time.Now()
	return strings.Fields(string(body)), nil
}

// resolve gives up after a while, since the names that the pod has to wait for may have changed. Names that have resolved once
// are not looked up again.
func (w *wait) resolve(ctx context.Context, names []string) bool {
	ctx, cancel := context.WithTimeout(ctx, resolveFor)
	defer cancel()
	for _, name := range names {
		for !w.resolved[name] {
			_, err := net.DefaultResolver.LookupHost(ctx, name)
			if err == nil {
				w.resolved[name] = true
				continue
			}
			w.log(fmt.Sprintf("the name %s does not resolve", name))
			if !pauseFor(ctx, poll) {
				return false
			}
		}
	}
	return true
}

// log writes a new reason, so that the log of a pod shows why it waits.
func (w *wait) log(reason string) {
	if reason != w.reason {
		fmt.Fprintln(os.Stderr, "waiting:", reason)
	}
	w.reason = reason
}

func hosts(endpoints string) []string {
	var found []string
	for _, endpoint := range strings.Split(endpoints, ",") {
		if host, _, err := net.SplitHostPort(endpoint); err == nil {
			found = append(found, host)
		}
	}
	return found
}

// report writes why the gate has passed into the container's termination message, which is in the status of the pod.
func report(message string) {
	fmt.Fprintln(os.Stderr, message)
	if err := os.WriteFile(terminationMessage, []byte(message), 0o644); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
}

// pauseFor returns false when the context ends before the time is over.
func pauseFor(ctx context.Context, length time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(length):
		return true
	}
}
