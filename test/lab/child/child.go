// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

// Package child starts programs that do not outlive whoever started them.
//
// The kernel ends them with a signal when the thread that forked them ends (PR_SET_PDEATHSIG, prctl(2)), and the Go runtime ends a thread with a
// goroutine that has locked it and does not give it back. So whom some goroutine forks, another may have killed seconds later; here the thread is
// kept until the program has ended. Input is a command, output a channel. It imports the standard library only.
package child

import (
	"fmt"
	"os/exec"
	"runtime"
	"syscall"
)

// Start starts cmd, which gets sig when this process ends. ended is closed when it has ended and was waited for; cmd.ProcessState says how.
func Start(cmd *exec.Cmd, sig syscall.Signal) (ended <-chan struct{}, err error) {
	Tie(cmd, sig)
	started, done := make(chan error, 1), make(chan struct{})
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread() // or the thread would end, and with it whom it has forked before
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // how it ended is read where it matters
		}
		close(done)
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", cmd.Path, err)
	}
	return done, nil
}

// StartHere is Start by the calling thread, whose namespaces the program then has too. The caller's goroutine has locked the thread, and keeps it until
// the program has ended.
func StartHere(cmd *exec.Cmd, sig syscall.Signal) (ended <-chan struct{}, err error) {
	Tie(cmd, sig)
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", cmd.Path, err)
	}
	done := make(chan struct{})
	go func() {
		_ = cmd.Wait() // how it ended is read where it matters
		close(done)
	}()
	return done, nil
}

// Tie has a command get sig when the thread that starts it ends: only for whoever keeps that thread.
func Tie(cmd *exec.Cmd, sig syscall.Signal) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig = sig
}
