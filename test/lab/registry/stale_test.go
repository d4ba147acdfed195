// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package registry

import (
	"os"
	"path/filepath"
	"testing"
)

func TestStale(t *testing.T) {
	t.Parallel()
	there := filepath.Join(t.TempDir(), "r.log"+configSuffix)
	if err := os.WriteFile(there, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for line, want := range map[string]bool{
		"/c/docker-registry\x00serve\x00" + there + "\x00":                   false,
		"/c/docker-registry\x00serve\x00" + there + ".gone" + configSuffix:   true,
		"/c/docker-registry\x00serve\x00/etc/docker/registry/config.yml\x00": false,
		"/c/docker-registry\x00serve\x00/gone/config.yml\x00":                false,
		"vi\x00" + there + ".gone" + configSuffix + "\x00":                   false,
		"": false,
	} {
		if got := stale([]byte(line)); got != want {
			t.Errorf("%q: %t", line, got)
		}
	}
}
