package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
)

// remembered is the number of ids kept to detect duplicates.
const remembered = 10_000

// ledger is the effect of this example: a line per fact. A file also records, across crashes, what was handled.
type ledger struct {
	out   *os.File
	seen  map[string]bool
	order []string
}

// openLedger appends to the file, or writes to standard output when the path is empty.
func openLedger(path string) (*ledger, error) {
	found := &ledger{out: os.Stdout, seen: map[string]bool{}}
	if path == "" {
		return found, nil
	}
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	found.out = file
	if err := found.recall(); err != nil {
		file.Close()
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return found, nil
}

// recall reads the ids back and truncates a line that a crash left incomplete.
func (l *ledger) recall() error {
	reader := bufio.NewReader(l.out)
	var whole int64
	for {
		line, err := reader.ReadBytes('\n')
		if err == io.EOF {
			break
		}
		if err != nil {
			return err
		}
		var written fact
		if err := json.Unmarshal(line, &written); err != nil {
			return err
		}
		l.remember(written.ID)
		whole += int64(len(line))
	}
	if err := l.out.Truncate(whole); err != nil {
		return err
	}
	_, err := l.out.Seek(whole, io.SeekStart)
	return err
}

// Add writes the fact, once per id; when it returns the line is on disk.
func (l *ledger) Add(found fact) error {
	if l.seen[found.ID] {
		return nil
	}
	var line bytes.Buffer
	encoder := json.NewEncoder(&line)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(found); err != nil {
		return err
	}
	if _, err := l.out.Write(line.Bytes()); err != nil {
		return err
	}
	if l.out != os.Stdout {
		if err := l.out.Sync(); err != nil {
			return err
		}
	}
	l.remember(found.ID)
	return nil
}

func (l *ledger) remember(id string) {
	if l.seen[id] {
		return
	}
	l.seen[id] = true
	l.order = append(l.order, id)
	if len(l.order) > remembered {
		delete(l.seen, l.order[0])
		l.order = l.order[1:]
	}
}

// Close closes the file.
func (l *ledger) Close() error {
	return l.out.Close()
}
