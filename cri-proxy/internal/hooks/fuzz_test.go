// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package hooks

import (
	"testing"
)

// FuzzParse: a configuration file is taken whole or refused, and what is taken can be called.
func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"remote-endpoint":"/x","failure-policy":"Fail","runtime-hooks":["PreRunPodSandbox","?"]}`), false)
	f.Add([]byte(`{"remote-endpoint":"tcp://[::1]:5"}`), false)
	f.Add([]byte(`{"remote-endpoint":"h:5"}`), true)
	f.Fuzz(func(t *testing.T, data []byte, remote bool) {
		s, notes, err := parse(data, remote)
		if err != nil {
			if s != (Server{}) || notes != nil {
				t.Fatalf("partial result with %v", err)
			}
			return
		}
		again, err := parseEndpoint(s.Endpoint.String(), remote)
		if err != nil || again != s.Endpoint || s.Policy != PolicyFail && s.Policy != PolicyIgnore {
			t.Fatalf("%+v: %v", s, err)
		}
	})
}
