// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package sys

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/koord-rt/koord-rt/kernel/root"
)

func TestHardwareInterfaces(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, name := range []string{"eth1/device", "eth0/device", "lo", "cali12345", "bond0"} {
		if err := os.MkdirAll(filepath.Join(dir, "class/net", name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	got, err := FS(dir).HardwareInterfaces()
	if diff := cmp.Diff([]string{"eth0", "eth1"}, got); diff != "" || err != nil {
		t.Errorf("%v\n%s", err, diff)
	}
	if got, err := FS(dir + "/none").HardwareInterfaces(); got != nil || err != nil {
		t.Errorf("no sysfs: %v, %v", got, err)
	}
}

// TestThisHostsLoopback reads an interface that every machine has. It counts allocations, so it is not parallel.
func TestThisHostsLoopback(t *testing.T) {
	i, err := FS("/sys").Interface("lo")
	if err != nil {
		t.Fatal(err)
	}
	defer i.Close()
	b := root.Get()
	defer b.Put()
	var received, sent uint64
	n := testing.AllocsPerRun(10, func() { received, sent, err = i.Bytes(b) })
	if err != nil || n != 0 || received != sent {
		t.Errorf("received %d, sent %d, %v, %v allocations", received, sent, err, n)
	}
	if _, err := FS("/sys").Interface("no-such-interface"); err == nil {
		t.Error("no interface was opened")
	}
}

func FuzzParseCounter(f *testing.F) {
	f.Add("106032760")
	f.Add("-1")
	f.Fuzz(func(t *testing.T, s string) {
		n := uint64(7)
		if err := parseCounter([]byte(s), &n); err != nil && n != 7 {
			t.Errorf("%q: %d beside %v", s, n, err)
		}
	})
}
