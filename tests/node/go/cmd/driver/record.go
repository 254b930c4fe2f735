package main

import (
	"encoding/json"
	"os"
	"sync"
	"time"
)

type entry map[string]any

// recorder appends entries to the log file. One write call per line keeps lines of two instances of
// one driver whole when they share the file.
type recorder struct {
	mu       sync.Mutex
	file     *os.File
	instance string
}

func openRecorder(name, instance string) (*recorder, error) {
	file, err := os.OpenFile(name, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	return &recorder{file: file, instance: instance}, nil
}

func (r *recorder) write(line entry) {
	r.mu.Lock()
	defer r.mu.Unlock()
	line["t"], line["instance"] = seconds(time.Now()), r.instance
	content, err := json.Marshal(line)
	if err != nil {
		panic(err) // only plain values are ever written
	}
	if _, err := r.file.Write(append(content, '\n')); err != nil {
		os.Stderr.WriteString("driver: log: " + err.Error() + "\n")
	}
}

func seconds(t time.Time) float64 { return float64(t.UnixMicro()) / 1e6 }
