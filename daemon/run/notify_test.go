// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package run

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"testing"
)

// Who does not read what he is told holds nobody up for long.
func TestNotifyWhoDoesNotRead(t *testing.T) {
	t.Parallel()
	addr := &net.UnixAddr{Net: "unixgram", Name: filepath.Join(t.TempDir(), "notify.sock")}
	c, err := net.ListenUnixgram("unixgram", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	n := &Notifier{addr: addr}
	for range 1000 { // more than any queue takes (net.unix.max_dgram_qlen)
		if err = n.send("WATCHDOG=1"); err != nil {
			break
		}
	}
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("%v", err)
	}
}
