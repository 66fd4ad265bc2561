package main

import (
	"encoding/json"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"
)

// fact is a CloudEvent in binary mode: attributes in headers, proto3 JSON in the body.
type fact struct {
	ID      string          `json:"id"`
	Type    string          `json:"type"`
	Source  string          `json:"source"`
	Time    string          `json:"time"`
	Subject string          `json:"subject"`
	Data    json.RawMessage `json:"data"`
}

// read parses the message; it accepts unknown types and fields.
func read(message jetstream.Msg) (fact, error) {
	headers := message.Headers()
	found := fact{
		ID:      headers.Get("ce-id"),
		Type:    headers.Get("ce-type"),
		Source:  headers.Get("ce-source"),
		Time:    headers.Get("ce-time"),
		Subject: message.Subject(),
		Data:    message.Data(),
	}
	if headers.Get("ce-specversion") != "1.0" || found.ID == "" || found.Type == "" {
		return fact{}, fmt.Errorf("headers ce-specversion 1.0, ce-id and ce-type are required")
	}
	if !json.Valid(found.Data) {
		return fact{}, fmt.Errorf("%s: the body is not JSON", found.ID)
	}
	return found, nil
}
