// Command echo answers each request with the text in TARGET, after as many milliseconds as the query's `ms` says.
//
// On SIGTERM it accepts nothing new and finishes what it has; with ABRUPT=yes it exits at once.
package main

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"
)

func main() {
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
	time.Sleep(time.Duration(wait) * time.Millisecond)
	host, _ := os.Hostname()
	answer.Header().Set("X-Pod", host)
	if status, err := strconv.Atoi(request.URL.Query().Get("status")); err == nil {
		answer.WriteHeader(status)
	}
	fmt.Fprintln(answer, os.Getenv("TARGET"))
}

func or(text, other string) string {
	if text == "" {
		return other
	}
	return text
}
