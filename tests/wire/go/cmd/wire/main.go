// wire is both ends of the agent as grpc-go sees them: `wire kubelet` calls with kubelet's dial options,
// `wire driver …` serves with the limits of the driver helper. Both speak JSON lines on standard input
// and output; tests/wire/harness.py says which.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"sync"

	"google.golang.org/grpc/metadata"
)

type object = map[string]any

var printing sync.Mutex

// say writes one line; lines of concurrent calls stay whole.
func say(line object) {
	printing.Lock()
	defer printing.Unlock()
	if err := json.NewEncoder(os.Stdout).Encode(line); err != nil {
		os.Exit(1)
	}
}

func lines() *bufio.Scanner {
	scanner := bufio.NewScanner(os.Stdin)
	scanner.Buffer(nil, 64<<20)
	return scanner
}

// pairs lists metadata as [key, bytes]; JSON makes the bytes base64.
func pairs(md metadata.MD) [][2]any {
	out := [][2]any{}
	for key, values := range md {
		for _, value := range values {
			out = append(out, [2]any{key, []byte(value)})
		}
	}
	return out
}

func main() {
	if len(os.Args) > 1 && os.Args[1] == "kubelet" {
		kubelet()
	} else if len(os.Args) > 4 && os.Args[1] == "driver" {
		serveDriver(os.Args[2], os.Args[3], os.Args[4], len(os.Args) > 5)
	} else {
		fmt.Fprintln(os.Stderr, "usage: wire kubelet | wire driver NAME REGISTRATION ENDPOINT [health]")
		os.Exit(2)
	}
}
