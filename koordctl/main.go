// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

// Command koordctl explains what koord-rt has done to the containers of this node, and undoes it.
package main

import (
	"context"
	"errors"
	"fmt"
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
	cmd := ctl.New(run.Version{Program: "koordctl", Version: version, Commit: commit}, os.Stdout, os.Stderr)
	err := cmd.ExecuteContext(ctx)
	stop()
	switch {
	case err == nil:
	case errors.Is(err, ctl.ErrFound):
		// The command has already printed what it found.
		os.Exit(1)
	default:
		fmt.Fprintln(os.Stderr, "koordctl:", err)
		os.Exit(2)
	}
}
