// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package lock

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

func FuzzHolder(f *testing.F) {
	f.Add([]byte("1234\n"))
	f.Add([]byte("-1"))
	f.Add([]byte("99999999999999999999999999999999999999"))
	f.Fuzz(func(t *testing.T, content []byte) {
		path := filepath.Join(t.TempDir(), "lock")
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		pid := Holder(path)
		if n, err := strconv.Atoi(strings.TrimSpace(string(content))); len(content) <= 32 && err == nil && n >= 0 && pid != n {
			t.Fatalf("%q: pid %d", content, pid)
		}
		if pid < 0 || pid > 0 && !strings.Contains(string(content), strconv.Itoa(pid)[:1]) {
			t.Fatalf("%q: pid %d", content, pid)
		}
	})
}
