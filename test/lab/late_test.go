// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package lab

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Words that nobody logs any more would excuse nothing, and tests would fail on a starved machine only.
func TestLateWordsAreLogged(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../../engine/*.go")
	if err != nil {
		t.Fatal(err)
	}
	var source strings.Builder
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		source.Write(text)
	}
	for _, words := range lateWords {
		if !strings.Contains(source.String(), words+`"`) {
			t.Errorf("the engine does not log %q", words)
		}
	}
	if n := Late("a\nmsg=\"decision is late\"\nb\nreason=\"the pod's cgroup is still being written at start\"\n"); n != 2 {
		t.Errorf("%d requests were late, want 2", n)
	}
}
