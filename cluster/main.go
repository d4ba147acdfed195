// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

// Command koord-manager is the cluster side: it turns the cluster's strategy into each node's, reports of nodes into resources that
// can be lent out, and admits pods through colocation profiles.
//
// Flags are those of Koordinator's manager, and --roles. It needs the kinds of packaging/crds and the rights of
// packaging/manifests. See docs/user/manager.md.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"

	"github.com/go-logr/logr"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/koord-rt/koord-rt/cluster/internal/setup"
	"github.com/koord-rt/koord-rt/daemon/logs"
	"github.com/koord-rt/koord-rt/daemon/run"
)

// Filled by the linker: -ldflags "-X main.version=v0.1.0 -X main.commit=abc123".
var (
	version = "devel"
	commit  = ""
)

func main() {
	ctx, stop := run.Signals(context.Background())
	code := start(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// start does what args ask and returns the exit code: 0, also for a manager that ran until ctx ended; 1 when something failed; 2 for
// a command line that cannot be understood.
func start(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	v := run.Version{Program: setup.Program, Version: version, Commit: commit}
	o, notes, err := setup.Parse(args, os.Getenv, stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		fmt.Fprintf(stderr, "%s: %v\n", setup.Program, err)
		return 2
	case o.Version:
		fmt.Fprintln(stdout, v)
		return 0
	}
	log, err := logs.New(logs.Options{Level: o.LogLevel, Format: o.LogFormat, Out: stderr})
	if err != nil {
		fmt.Fprintf(stderr, "%s: %v\n", setup.Program, err)
		return 2
	}
	// Two libraries log by loggers of their own.
	ctrl.SetLogger(logr.FromSlogHandler(log.Handler()))
	klog.SetSlogLogger(log)
	for _, note := range notes {
		log.Warn(note)
	}
	// An empty path is the service account of the pod.
	c, err := clientcmd.BuildConfigFromFlags("", o.Kubeconfig)
	if err != nil {
		log.Error("no connection to an API server: run in a pod, or give --kubeconfig", "err", err)
		return 1
	}
	c.UserAgent = setup.Program + "/" + version
	log.Info("started", "version", v.String(), "roles", o.Roles, "controllers", o.Controllers)
	if err := setup.Run(ctx, o, c, log); err != nil {
		log.Error("ended", "err", err)
		return 1
	}
	log.Info("ended")
	return 0
}
