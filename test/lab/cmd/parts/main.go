// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

// Command parts builds parts of the test lab into the cache and prints "name folder"
// per part on standard output; progress goes to standard error.
//
//	go run ./test/lab/cmd/parts containerd-2.4 runc crictl image
//
// Without arguments it lists the names.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/koord-rt/koord-rt/test/lab/parts"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "parts:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, names []string) error {
	if len(names) == 0 {
		for _, n := range parts.Names() {
			fmt.Println(n)
		}
		return nil
	}
	cache, err := parts.Open(parts.Options{Progress: os.Stderr})
	if err != nil {
		return err
	}
	for _, n := range names {
		dir, err := cache.Get(ctx, n)
		if err != nil {
			return err
		}
		fmt.Println(n, dir)
	}
	return nil
}
