// Command pause is two programs in one static file, named by how it is called.
//
// /pause holds a pod's namespaces open and reaps its orphans.
// /gate --file PATH waits until PATH is not empty; /gate --resolve-all PATH waits until every name in PATH, separated by
// white space, resolves. PATH may change meanwhile. /gate --ask URL waits until a GET of URL answers 200; an answer may take
// half a minute. With --fallback 30s after that, it also passes when no GET was answered 200 or 202 for so long, and writes
// why into the container's termination message.
package main

import (
	"context"
	"fmt"
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
	poll   = 200 * time.Millisecond
	again  = time.Second
	answer = 60 * time.Second
	dial   = 10 * time.Second

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

func gate(ctx context.Context, args []string) int {
	open, err := condition(args)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	for !open(ctx) {
		select {
		case <-ctx.Done():
			return 143
		case <-time.After(poll):
		}
	}
	return 0
}

func condition(args []string) (func(context.Context) bool, error) {
	if len(args) == 2 && args[0] == "--file" {
		return func(context.Context) bool { return filled(args[1]) }, nil
	}
	if len(args) == 2 && args[0] == "--resolve-all" {
		return resolved(args[1]), nil
	}
	if len(args) == 2 && args[0] == "--ask" {
		return agreed(args[1], 0), nil
	}
	if len(args) == 4 && args[0] == "--ask" && args[2] == "--fallback" {
		fallback, err := time.ParseDuration(args[3])
		if err == nil && fallback > 0 {
			return agreed(args[1], fallback), nil
		}
	}
	usage := "usage: gate --file PATH | gate --resolve-all PATH | gate --ask URL [--fallback DURATION]; got %q"
	return nil, fmt.Errorf(usage, args)
}

func filled(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Size() > 0
}

// agreed asks without the proxy of the environment, which would not know an address of the cluster. It never falls back
// if fallback is 0.
func agreed(url string, fallback time.Duration) func(context.Context) bool {
	dialer := &net.Dialer{Timeout: dial}
	transport := &http.Transport{DisableKeepAlives: true, DialContext: dialer.DialContext}
	client := &http.Client{Timeout: answer, Transport: transport}
	said, answered := "", time.Now()
	return func(ctx context.Context) bool {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return false
		}
		response, err := client.Do(request)
		if err != nil {
			said = later(ctx, said, err.Error())
			return gaveUp(ctx, answered, fallback, said)
		}
		response.Body.Close()
		if response.StatusCode == http.StatusOK {
			return true
		}
		if response.StatusCode == http.StatusAccepted {
			answered = time.Now()
		}
		said = later(ctx, said, response.Status)
		return gaveUp(ctx, answered, fallback, said)
	}
}

// gaveUp reports why in the container's termination message, which is in the status of the pod.
func gaveUp(ctx context.Context, answered time.Time, fallback time.Duration, why string) bool {
	if fallback == 0 || time.Since(answered) < fallback || ctx.Err() != nil {
		return false
	}
	message := fmt.Sprintf("no answer for %v: %s", fallback, why)
	fmt.Fprintln(os.Stderr, message)
	if err := os.WriteFile(terminationMessage, []byte(message), 0o644); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	return true
}

// later logs a new reason, so that the log of a pod shows why it waits, and waits a moment.
func later(ctx context.Context, said, why string) string {
	if why != said {
		fmt.Fprintln(os.Stderr, "waiting:", why)
	}
	select {
	case <-ctx.Done():
	case <-time.After(again):
	}
	return why
}

// resolved remembers the names already seen, so that each round asks only for those still missing.
func resolved(path string) func(context.Context) bool {
	seen := map[string]bool{}
	return func(ctx context.Context) bool {
		content, err := os.ReadFile(path)
		if err != nil {
			return false
		}
		missing := 0
		for _, name := range strings.Fields(string(content)) {
			if !seen[name] && !resolves(ctx, name) {
				missing++
				continue
			}
			seen[name] = true
		}
		return missing == 0
	}
}

func resolves(ctx context.Context, name string) bool {
	_, err := net.DefaultResolver.LookupHost(ctx, name)
	return err == nil
}
