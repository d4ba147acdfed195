// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"

	"golang.org/x/sys/unix"
)

// leaveCPU keeps this program, and so everything that it starts, off the last CPU, which becomes the plugins' own. back
// undoes it.
func (b *bench) leaveCPU() (back func() error, err error) {
	n := runtime.NumCPU()
	if n < 2 {
		return nil, errors.New("a CPU of its own for the plugin needs two")
	}
	var all, rest unix.CPUSet
	if err := unix.SchedGetaffinity(0, &all); err != nil {
		return nil, fmt.Errorf("read own CPUs: %w", err)
	}
	rest = all
	rest.Clear(n - 1)
	b.own = n - 1
	back = func() error {
		b.own = 0
		return setAffinity(&all)
	}
	return back, setAffinity(&rest)
}

// setAffinity moves every thread of this process.
func setAffinity(cpus *unix.CPUSet) error {
	threads, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return fmt.Errorf("list own threads: %w", err)
	}
	for _, t := range threads {
		tid, err := strconv.Atoi(t.Name())
		if err == nil {
			err = unix.SchedSetaffinity(tid, cpus)
		}
		if err != nil && !errors.Is(err, unix.ESRCH) { // ESRCH: ended meanwhile
			return fmt.Errorf("set CPUs of thread %s: %w", t.Name(), err)
		}
	}
	return nil
}

// onOwnCPU has a command run on the plugins' CPU, where they have one.
func (b *bench) onOwnCPU(cmd *exec.Cmd) *exec.Cmd {
	if b.own == 0 {
		return cmd
	}
	out := exec.Command("taskset", append([]string{"-c", strconv.Itoa(b.own)}, cmd.Args...)...)
	out.Env, out.Dir = cmd.Env, cmd.Dir
	return out
}
