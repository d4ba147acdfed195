// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build linux

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/koord-rt/koord-rt/test/lab/cgroups"
)

func main() {
	hold := flag.Bool("hold", false, "keep everything until Ctrl-C, to look around")
	lend := flag.Int("lend", 100, "cluster: percent of the node's CPUs that may be lent out; more than 100 lends what is not there, for a machine that does other work too")
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), "usage: demo [flags] [cluster]\nthree pods on a containerd, or with \"cluster\" a whole cluster; flags come first")
		flag.PrintDefaults()
	}
	flag.Parse()
	whole := flag.Arg(0) == "cluster"
	if flag.NArg() > 1 || flag.NArg() == 1 && !whole {
		flag.Usage()
		os.Exit(2)
	}
	if err := check(whole); err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	s := newScreen(os.Stdout)
	d := &demo{screen: s, start: time.Now(), hold: *hold}
	var show interface {
		run(ctx context.Context) error
		close() error
		farewell(left error)
	} = d
	if whole {
		show = &clustered{demo: d, lend: *lend}
	}
	err := show.run(ctx)
	interrupted := ctx.Err() != nil
	if interrupted {
		s.line("\nInterrupted; cleaning up.")
	}
	// The signals stay caught: a second one must not break the clean-up.
	left := show.close()
	stop()
	show.farewell(left)
	if interrupted {
		err = nil // of the calls that the signal cut short
	}
	if err = errors.Join(err, left); err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
	}
	if err != nil || interrupted {
		os.Exit(1)
	}
}

// check says what the demo lacks and what to do about it, before anything is started; whole is the cluster's.
func check(whole bool) error {
	target, programs := "make demo", []string{"koord-nri", "koordlet", "koordctl"}
	if whole {
		target, programs = "make demo-cluster", append(programs, "koord-manager")
	}
	if os.Geteuid() != 0 {
		return errors.New("needs root, because it starts containers and reads their cgroups.\n" +
			"What to do: sudo " + target + " (or run it as root in a VM)")
	}
	if _, err := cgroups.Detect(); err != nil {
		return fmt.Errorf("no cgroup file system: %w.\nWhat to do: in a container, start it privileged with the host's cgroup namespace; "+
			"on a machine, mount cgroup2 at /sys/fs/cgroup", err)
	}
	for _, name := range programs {
		if _, err := os.Stat(binary(name)); err != nil {
			return fmt.Errorf("%s is not built.\nWhat to do: run `%s` in the repository's root; it builds first", binary(name), target)
		}
	}
	for _, name := range []string{"go", "gcc"} {
		if _, err := exec.LookPath(name); err != nil && !(cached("runc") && (!whole || cached("kube-scheduler"))) {
			return fmt.Errorf("%s is not in PATH; containerd, runc and what else runs here are built from source.\nWhat to do: install Go 1.26 and gcc (apt-get install gcc libc6-dev)", name)
		}
	}
	return nil
}

// binary is a program of ours: in KOORD_RT_BIN, else relative to the repository's root.
func binary(name string) string {
	if dir := os.Getenv("KOORD_RT_BIN"); dir != "" {
		return filepath.Join(dir, name)
	}
	return filepath.Join("bin", name)
}

// cached reports whether a part was built before, so that no compiler is needed.
func cached(part string) bool {
	root := os.Getenv("KOORD_RT_CACHE")
	if root == "" {
		base, err := os.UserCacheDir()
		if err != nil {
			return false
		}
		root = filepath.Join(base, "koord-rt")
	}
	found, err := filepath.Glob(filepath.Join(root, part+"-*"))
	return err == nil && len(found) > 0
}

// kernelRelease is `uname -r`.
func kernelRelease() string {
	data, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(data))
}
