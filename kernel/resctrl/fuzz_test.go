// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package resctrl

import (
	"os"
	"path/filepath"
	"reflect"
	"testing"
)

func FuzzParseLine(f *testing.F) {
	f.Add("    L3:0=fffff;1=ff\n")
	f.Add("MB:0=100;0=50")
	f.Add("L3:=;")
	f.Fuzz(func(t *testing.T, text string) {
		line, err := ParseLine(text)
		if (err == nil) != (line.Resource != "" && len(line.Entries) > 0) {
			t.Fatalf("%q: %+v with error %v", text, line, err)
		}
		if err != nil {
			return
		}
		if again, err := ParseLine(line.String()); err != nil || !reflect.DeepEqual(again, line) {
			t.Fatalf("%q is %+v, which is read as %+v (%v)", text, line, again, err)
		}
	})
}

// FuzzInfo puts arbitrary text into the files of the info directory: an error or a mask that fits the schemata.
func FuzzInfo(f *testing.F) {
	f.Add("L3:0=fffff\n", "fffff\n", "16\n", "")
	f.Add("MB:0=100\nL3:0=f\n", "f", "-1", "mba_MBps")
	f.Fuzz(func(t *testing.T, schemata, mask, number, option string) {
		dir := t.TempDir()
		files := map[string]string{"schemata": schemata, "tasks": "", "info/L3/cbm_mask": mask}
		for _, name := range []string{"L3/min_cbm_bits", "L3/num_closids", "MB/min_bandwidth", "MB/bandwidth_gran", "MB/delay_linear", "MB/num_closids"} {
			files["info/"+name] = number
		}
		for name, content := range files {
			path := filepath.Join(dir, name)
			if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		rdt, err := FS(dir).Info([]string{option})
		if rdt.L3 && len(rdt.L3IDs) == 0 || rdt.MB && len(rdt.MBIDs) == 0 || err == nil && !rdt.L3 && !rdt.MB && rdt.Why == "" {
			t.Fatalf("%+v with error %v", rdt, err)
		}
	})
}
