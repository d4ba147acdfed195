// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package ledger

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/koord-rt/koord-rt/model/journal"
	"github.com/koord-rt/koord-rt/model/plan"
)

// Read tells one writer's records, whoever else has written; a writer without a file has none.
func TestRead(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	mine := []journal.Record{record("a", plan.CPUShares, 2, "1024", "2"), record("a", plan.MemoryHigh, 1, "max", "4096")}
	appendAll(t, open(t, dir, "nri", Options{}), mine...)
	appendAll(t, open(t, dir, "cri", Options{}), record("a", plan.CPUShares, 3, "2", "512"))
	f, err := os.OpenFile(filepath.Join(Dir(dir), "nri.jsonl"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString("{torn\n"); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	got, torn, err := Read(dir, "nri")
	if diff := cmp.Diff(mine, unstamped(t, got)); diff != "" || torn != 1 || err != nil {
		t.Errorf("%d torn, %v\n%s", torn, err, diff)
	}
	if got, torn, err := Read(dir, "koordlet"); len(got) > 0 || torn > 0 || err != nil {
		t.Errorf("of nobody: %v, %d torn, %v", got, torn, err)
	}
}
