// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/koord-rt/koord-rt/test/lab/vm/guestcfg"
)

const (
	stdoutFile = "/run/koord-vm.stdout"
	stderrFile = "/run/koord-vm.stderr"
	// drainTime is how long output is still read after the command ended: processes it left behind may hold the pipe.
	drainTime = time.Second
)

// runCommand runs the command in / and reaps whatever else ends meanwhile: as PID 1 this process inherits orphans.
func runCommand(cfg guestcfg.Config) (exit guestcfg.Exit, err error) {
	if err := os.MkdirAll(guestcfg.OutDir, 0o755); err != nil {
		return exit, fmt.Errorf("create out folder: %w", err)
	}
	env := mergeEnv(defaultEnv(), cfg.Env)
	program, err := lookPath(cfg.Command[0], env)
	if err != nil {
		return exit, err
	}
	var streams [2]stream
	for i, file := range []string{stdoutFile, stderrFile} {
		if streams[i], err = openStream(file, cfg.Tee); err != nil {
			return exit, err
		}
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		return exit, fmt.Errorf("open null device: %w", err)
	}
	if err := checkTimers(); err != nil {
		return exit, err
	}
	// Of a level that `quiet` shows, through the kernel: no other line of it can come in between.
	if err := os.WriteFile("/dev/kmsg", []byte("<2>"+guestcfg.Begins+"\n"), 0); err != nil {
		return exit, fmt.Errorf("tell that the command begins: %w", err)
	}
	pid, err := syscall.ForkExec(program, cfg.Command, &syscall.ProcAttr{
		Dir: "/", Env: env,
		Files: []uintptr{null.Fd(), streams[0].write.Fd(), streams[1].write.Fd()},
		Sys:   &syscall.SysProcAttr{Setpgid: true},
	})
	if err != nil {
		return exit, fmt.Errorf("start %s: %w", program, err)
	}
	var copying sync.WaitGroup
	for _, s := range streams {
		_ = s.write.Close()
		copying.Go(s.copy)
	}
	exit, err = waitCommand(pid, cfg.Seconds)
	for _, s := range streams {
		_ = s.read.SetReadDeadline(time.Now().Add(drainTime))
	}
	copying.Wait()
	return exit, err
}

// waitCommand waits for pid and kills its process group after the given number of seconds.
func waitCommand(pid, seconds int) (exit guestcfg.Exit, err error) {
	expired := make(chan struct{})
	if seconds > 0 {
		timer := time.AfterFunc(time.Duration(seconds)*time.Second, func() {
			close(expired)
			_ = unix.Kill(-pid, unix.SIGKILL)
		})
		defer timer.Stop()
	}
	for {
		var status unix.WaitStatus
		got, err := unix.Wait4(-1, &status, 0, nil)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return exit, fmt.Errorf("wait for command: %w", err)
		case got != pid:
			continue
		}
		select {
		case <-expired:
			return guestcfg.Exit{Code: 124, TimedOut: true}, nil
		default:
		}
		if status.Signaled() {
			return guestcfg.Exit{Code: 128 + int(status.Signal())}, nil
		}
		return guestcfg.Exit{Code: status.ExitStatus()}, nil
	}
}

// stream carries one output of the command into a file and, if wanted, to the console.
type stream struct {
	read, write *os.File
	to          io.Writer
}

func openStream(path string, tee bool) (s stream, err error) {
	file, err := os.Create(path)
	if err != nil {
		return s, fmt.Errorf("create output file: %w", err)
	}
	s.to = file
	if tee {
		console, err := os.OpenFile("/dev/console", os.O_WRONLY|unix.O_NOCTTY, 0)
		if err != nil {
			return s, fmt.Errorf("open console: %w", err)
		}
		s.to = io.MultiWriter(file, console)
	}
	if s.read, s.write, err = os.Pipe(); err != nil {
		return s, fmt.Errorf("open pipe: %w", err)
	}
	return s, nil
}

// copy ends with the last writer or the drain deadline; a full /run shows as output cut short.
func (s stream) copy() { _, _ = io.Copy(s.to, s.read) }

func mergeEnv(base, extra []string) []string {
	out := make([]string, 0, len(base)+len(extra))
	for _, kv := range base {
		key, _, _ := strings.Cut(kv, "=")
		replaced := false
		for _, e := range extra {
			replaced = replaced || strings.HasPrefix(e, key+"=")
		}
		if !replaced {
			out = append(out, kv)
		}
	}
	return append(out, extra...)
}

// lookPath finds a program the way a shell would with the command's own PATH.
func lookPath(name string, env []string) (string, error) {
	if strings.Contains(name, "/") {
		return name, nil
	}
	for _, kv := range env {
		list, ok := strings.CutPrefix(kv, "PATH=")
		if !ok {
			continue
		}
		for _, dir := range filepath.SplitList(list) {
			path := filepath.Join(dir, name)
			if unix.Access(path, unix.X_OK) == nil {
				return path, nil
			}
		}
	}
	return "", fmt.Errorf("find command %s: not in PATH", name)
}
