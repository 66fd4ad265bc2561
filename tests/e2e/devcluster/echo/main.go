// Command echo answers each request with the text in TARGET, after as many milliseconds as the query's `ms` says.
//
// ERRORS percent of the requests fail with 500, and SLOWER multiplies `ms`. On SIGTERM it accepts nothing new and finishes
// what it has; with ABRUPT=yes it exits at once.
//
// It stands in for a shell, too, which only sets variables: `echo -c 'TARGET=two ERRORS=20'`.
package main

import (
	"context"
	"fmt"
	"log"
	"math/rand/v2"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"
)

func main() {
	if len(os.Args) > 2 && os.Args[1] == "-c" {
		for _, word := range strings.Fields(os.Args[2]) {
			name, value, _ := strings.Cut(word, "=")
			_ = os.Setenv(name, value)
		}
	}
	server := &http.Server{Addr: ":" + or(os.Getenv("PORT"), "8080"), Handler: http.HandlerFunc(echo)}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	done := make(chan struct{})
	go func() {
		defer close(done)
		<-ctx.Done()
		if os.Getenv("ABRUPT") != "" {
			os.Exit(0)
		}
		_ = server.Shutdown(context.Background())
	}()
	if err := server.ListenAndServe(); err != http.ErrServerClosed {
		log.Fatal(err)
	}
	<-done
}

func echo(answer http.ResponseWriter, request *http.Request) {
	wait, _ := strconv.Atoi(request.URL.Query().Get("ms"))
	time.Sleep(time.Duration(wait*number("SLOWER", 1)) * time.Millisecond)
	host, _ := os.Hostname()
	answer.Header().Set("X-Pod", host)
	if status, err := strconv.Atoi(request.URL.Query().Get("status")); err == nil {
		answer.WriteHeader(status)
	} else if rand.IntN(100) < number("ERRORS", 0) {
		answer.WriteHeader(http.StatusInternalServerError)
	}
	fmt.Fprintln(answer, os.Getenv("TARGET"))
}

func number(variable string, other int) int {
	if value, err := strconv.Atoi(os.Getenv(variable)); err == nil {
		return value
	}
	return other
}

func or(text, other string) string {
	if text == "" {
		return other
	}
	return text
}
