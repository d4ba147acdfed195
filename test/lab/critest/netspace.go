// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package critest

import (
	"errors"
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// netspace is a network namespace with its loopback up, and an IPC namespace: a spec
// makes shared memory "on the host" and leaves it. Both live as long as this object
// is open or a process is in them.
type netspace struct{ net, ipc *os.File }

// newNetspace makes the namespaces; needs CAP_SYS_ADMIN.
func newNetspace() (*netspace, error) {
	n := &netspace{}
	err := onThread(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET | unix.CLONE_NEWIPC); err != nil {
			return fmt.Errorf("create namespaces: %w", err)
		}
		var err error
		if n.net, err = os.Open("/proc/thread-self/ns/net"); err != nil {
			return fmt.Errorf("open network namespace: %w", err)
		}
		if n.ipc, err = os.Open("/proc/thread-self/ns/ipc"); err != nil {
			return fmt.Errorf("open IPC namespace: %w", err)
		}
		return raiseLoopback()
	})
	if err != nil {
		return nil, errors.Join(err, n.close())
	}
	return n, nil
}

// do runs f on a thread in the namespaces. Children started by f itself are born there.
func (n *netspace) do(f func() error) error {
	return onThread(func() error {
		for _, ns := range []*os.File{n.net, n.ipc} {
			if err := unix.Setns(int(ns.Fd()), 0); err != nil {
				return fmt.Errorf("enter namespace: %w", err)
			}
		}
		return f()
	})
}

func (n *netspace) close() error {
	var errs []error
	for _, f := range []*os.File{n.net, n.ipc} {
		if f != nil {
			errs = append(errs, f.Close())
		}
	}
	return errors.Join(errs...)
}

// onThread runs f on an OS thread that ends with it, so that nothing else ever runs
// in the namespaces that f leaves it in.
func onThread(f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the runtime ends the thread
		done <- f()
	}()
	return <-done
}

// raiseLoopback sets the interface flag: netdevice(7).
func raiseLoopback() error {
	s, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("raise loopback: %w", err)
	}
	defer unix.Close(s)
	req, err := unix.NewIfreq("lo")
	if err != nil {
		return fmt.Errorf("raise loopback: %w", err)
	}
	req.SetUint16(unix.IFF_UP)
	if err := unix.IoctlIfreq(s, unix.SIOCSIFFLAGS, req); err != nil {
		return fmt.Errorf("raise loopback: %w", err)
	}
	return nil
}
