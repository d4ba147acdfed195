// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

// Command vm boots one guest of the test lab, runs a command in it and shows what happens:
//
//	go run ./test/lab/cmd/vm -kernel 6.12 -flavour bare -file ./prog:/bin/prog -- /bin/sh -c 'uname -a'
//
// Its exit code is the command's, 125 when the guest could not be run.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"time"

	"github.com/koord-rt/koord-rt/test/lab/vm"
)

const exitNoGuest = 125

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr, vm.Boot)
	stop()
	os.Exit(code)
}

// run boots what the arguments ask for and returns the exit code. What boot found out is told, also where it fails: the console is
// where one looks then.
func run(ctx context.Context, args []string, stdout, stderr io.Writer, boot func(context.Context, vm.Options) (vm.Result, error)) int {
	o, err := parse(args, stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		fmt.Fprintln(stderr, "vm:", err)
		return exitNoGuest
	}
	o.Console = stdout
	r, err := boot(ctx, o)
	if r.Output != "" {
		fmt.Fprintf(stderr, "vm: kernel %s, %s (%s of CPU), output in %s\n",
			r.Release, r.Took.Round(100*time.Millisecond), r.CPU.Round(100*time.Millisecond), r.Output)
	}
	if err != nil {
		fmt.Fprintln(stderr, "vm:", err)
		return exitNoGuest
	}
	return r.ExitCode
}

// parse reads the command line; help goes to usage.
func parse(args []string, usage io.Writer) (vm.Options, error) {
	o := vm.Options{Files: map[string]string{}}
	flags := flag.NewFlagSet("vm", flag.ContinueOnError)
	flags.SetOutput(usage)
	flags.StringVar(&o.Kernel, "kernel", "6.12", "kernel series: 6.1, 6.12 or 7.2")
	flags.Func("flavour", "bare (default) or systemd", func(s string) error { o.Flavour = vm.Flavour(s); return nil })
	flags.BoolVar(&o.CgroupV1, "cgroup-v1", false, "mount cgroup v1 (kernel 6.1)")
	flags.DurationVar(&o.Timeout, "timeout", 5*time.Minute, "for the command, from its begin on")
	flags.StringVar(&o.OutputDir, "output", "", "existing folder for stdout, stderr, console.log and out/ (default a new one)")
	flags.IntVar(&o.MemoryMiB, "memory", 0, "MiB of both NUMA nodes together (default 2048)")
	flags.IntVar(&o.DiskMiB, "disk", 0, "MiB free on /disk (default 1024)")
	flags.Func("file", "HOST:GUEST, may be repeated: a file or folder to have in the guest", func(s string) error {
		host, guest, ok := strings.Cut(s, ":")
		if !ok || host == "" || guest == "" {
			return fmt.Errorf("%q is not HOST:GUEST", s)
		}
		o.Files[host] = guest
		return nil
	})
	flags.Func("env", "KEY=value, may be repeated", func(s string) error { o.Env = append(o.Env, s); return nil })
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	o.Command = flags.Args()
	return o, nil
}
