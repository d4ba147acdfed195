// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

// Command koordctl explains what koord-rt has done to the containers of this node, and undoes it.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"

	"golang.org/x/sys/unix"

	"github.com/koord-rt/koord-rt/daemon/run"
	"github.com/koord-rt/koord-rt/koordctl/internal/ctl"
)

// version and commit are set by the linker: -ldflags "-X main.version=… -X main.commit=…".
var version, commit string

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGINT, unix.SIGTERM)
	code := start(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// start is main with its surroundings as arguments; the result is the exit code: 1 when the command has found something, and
// printed it, 2 when it failed.
func start(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	cmd := ctl.New(run.Version{Program: "koordctl", Version: version, Commit: commit}, stdout, stderr)
	cmd.SetArgs(args)
	err := cmd.ExecuteContext(ctx)
	switch {
	case err == nil:
		return 0
	case errors.Is(err, ctl.ErrFound):
		return 1
	}
	fmt.Fprintln(stderr, "koordctl:", err)
	return 2
}
