// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/koord-rt/koord-rt/test/lab/vm"
)

func TestParse(t *testing.T) {
	t.Parallel()
	none := map[string]string{}
	for name, tc := range map[string]struct {
		args string
		want vm.Options
		err  string
	}{
		"defaults": {"-- true", vm.Options{Kernel: "6.12", Timeout: 5 * time.Minute, Files: none, Command: []string{"true"}}, ""},
		"all": {
			"-kernel 6.1 -flavour bare -cgroup-v1 -timeout 90s -output /out -memory 3072 -disk 64 -file a:/b -file /c:/d:e -env A=b -env C= -- sh -c -v",
			vm.Options{
				Kernel: "6.1", Flavour: vm.Bare, CgroupV1: true, Timeout: 90 * time.Second, OutputDir: "/out", MemoryMiB: 3072, DiskMiB: 64,
				Files: map[string]string{"a": "/b", "/c": "/d:e"}, Env: []string{"A=b", "C="}, Command: []string{"sh", "-c", "-v"},
			}, "",
		},
		"no command":        {"-flavour systemd", vm.Options{Kernel: "6.12", Flavour: vm.Systemd, Timeout: 5 * time.Minute, Files: none, Command: []string{}}, ""},
		"file without name": {"-file /a -- true", vm.Options{}, `"/a" is not HOST:GUEST`},
		"file from nowhere": {"-file :/a -- true", vm.Options{}, `":/a" is not HOST:GUEST`},
		"unknown flag":      {"-cpu 9 -- true", vm.Options{}, "not defined: -cpu"},
		"no duration":       {"-timeout 5 -- true", vm.Options{}, "-timeout"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := parse(strings.Fields(tc.args), io.Discard)
			if tc.err != "" {
				if err == nil || !strings.Contains(err.Error(), tc.err) {
					t.Errorf("%v, want %s", err, tc.err)
				}
				return
			}
			if err != nil || !reflect.DeepEqual(got, tc.want) {
				t.Errorf("%+v, %v\nwant %+v", got, err, tc.want)
			}
		})
	}
}

// The command's exit code passes through; 125 is ours, and what the guest left is named in either case.
func TestRun(t *testing.T) {
	t.Parallel()
	guest := vm.Result{ExitCode: 3, Release: "6.12.1", Took: 61250 * time.Millisecond, CPU: 90 * time.Second, Output: "/tmp/out"}
	const told = "vm: kernel 6.12.1, 1m1.3s (1m30s of CPU), output in /tmp/out\n"
	for name, tc := range map[string]struct {
		args   string
		result vm.Result
		err    error
		code   int
		stderr string
	}{
		"the command's code":    {"-- false", guest, nil, 3, told},
		"a guest that panicked": {"-- false", guest, vm.ErrPanic, exitNoGuest, told + "vm: guest kernel panicked\n"},
		"no guest at all":       {"-- false", vm.Result{}, errors.New("no such part"), exitNoGuest, "vm: no such part\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var stdout, stderr bytes.Buffer
			code := run(t.Context(), strings.Fields(tc.args), &stdout, &stderr, func(_ context.Context, o vm.Options) (vm.Result, error) {
				_, err := io.WriteString(o.Console, "booting "+o.Kernel+"\n")
				return tc.result, errors.Join(err, tc.err)
			})
			if code != tc.code || stderr.String() != tc.stderr || stdout.String() != "booting 6.12\n" {
				t.Errorf("code %d, stdout %q, stderr %q; want %d and %q", code, &stdout, &stderr, tc.code, tc.stderr)
			}
		})
	}
}

// Nothing is booted by a command line that cannot be read, or that asks for help.
func TestRunWithoutGuest(t *testing.T) {
	t.Parallel()
	for args, code := range map[string]int{"-cpu 9": exitNoGuest, "-file a": exitNoGuest, "-h": 0} {
		var stderr bytes.Buffer
		got := run(t.Context(), strings.Fields(args), io.Discard, &stderr, func(context.Context, vm.Options) (vm.Result, error) {
			t.Errorf("%s: booted", args)
			return vm.Result{}, nil
		})
		if got != code || !strings.Contains(stderr.String(), "-kernel") {
			t.Errorf("%s: code %d, want %d; %q", args, got, code, &stderr)
		}
	}
}
