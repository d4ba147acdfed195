// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build lab

package e2e

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/koord-rt/koord-rt/daemon/status"
)

// lifecycleLateSocket starts koord-nri before its runtime has a socket: nothing stands there, then a plain file, then somebody who hangs up on
// everybody, then what such a one leaves behind. koord-nri says what it lacks and goes on trying, and when the runtime is there, it connects;
// the pod that was there meanwhile gets its values as the next one does.
func lifecycleLateSocket(r *rig) {
	socket := r.host.NRISocket
	before := r.pod(lsPod("socket-before"))
	if err := r.host.Kill(); err != nil {
		r.t.Fatal(err)
	}
	if err := os.Remove(socket); err != nil && !errors.Is(err, fs.ErrNotExist) {
		r.t.Fatal(err)
	}
	if err := os.WriteFile(r.config, r.configText(standard, onlyEvents()), 0o600); err != nil {
		r.t.Fatal(err)
	}
	r.launch()
	r.eventually(10*time.Second, func() error {
		s := r.status()
		lacks := func(p status.Problem) bool {
			return p.Key == "connection" && strings.Contains(p.Reason, socket) && strings.Contains(p.Reason, "no such file")
		}
		if !s.ConnectedSince.IsZero() || !slices.ContainsFunc(s.Problems, lacks) {
			return fmt.Errorf("koord-nri does not say that it lacks %s: connected since %s, problems %+v", socket, s.ConnectedSince, s.Problems)
		}
		return nil
	})
	if out, _ := r.ctl("doctor"); !strings.Contains(out, "runs but is not connected to the runtime") { // by its exit code it finds fault
		r.t.Errorf("koordctl doctor does not say that koord-nri is not connected:\n%s", out)
	}

	if err := os.WriteFile(socket, nil, 0o600); err != nil {
		r.t.Fatal(err)
	}
	for end := time.Now().Add(2 * time.Second); time.Now().Before(end); time.Sleep(100 * time.Millisecond) { // some tries
		if n := r.metric("koord_rt_nri_connected"); n != 0 {
			r.t.Fatal("koord-nri is connected to a plain file")
		}
	}
	if err := os.Remove(socket); err != nil {
		r.t.Fatal(err)
	}
	r.hangsUp(socket)
	if err := r.host.Restart(r.t.Context()); err != nil {
		r.t.Fatal(err)
	}
	r.synced()
	r.oneConnection()
	r.soon(5*time.Second, before, wants("LS", ""))
	r.now(r.pod(bePod("socket-after")), wants("BE", ""))
}

// hangsUp takes connections of koord-nri and ends each at once, until it has come for the third time. The socket stays behind: who asks there is
// refused.
func (r *rig) hangsUp(socket string) {
	r.t.Helper()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket, Net: "unix"})
	if err != nil {
		r.t.Fatal(err)
	}
	defer l.Close()
	l.SetUnlinkOnClose(false)
	var tries atomic.Int32
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			tries.Add(1)
			_ = conn.Close()
		}
	}()
	r.eventually(10*time.Second, func() error {
		if n := tries.Load(); n < 3 {
			return fmt.Errorf("koord-nri has tried %d times", n)
		}
		return nil
	})
}
