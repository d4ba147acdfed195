// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build lab

package e2e

import (
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
)

// servesFor is the node that the kubelet of serve is for: whom the certificate of httptest names.
const servesFor = "example.com"

// serve answers for the lab's kubelet, with TLS and a token, in the network namespace of this thread: koordlet's configuration of the way
// there.
func (r *rig) serve() map[string]any {
	r.t.Helper()
	const token = "lab-token"
	answer := func(w http.ResponseWriter, req *http.Request) {
		if req.URL.Path != "/pods" || req.Header.Get("Authorization") != "Bearer "+token {
			http.Error(w, "not for you", http.StatusForbidden)
			return
		}
		text, err := r.kube.Served()
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		_, _ = w.Write(text) // koordlet may have ended
	}
	server := httptest.NewUnstartedServer(http.HandlerFunc(answer))
	server.StartTLS()
	r.t.Cleanup(server.Close)
	dir := filepath.Dir(r.config)
	ca, secret := filepath.Join(dir, "kubelet.crt"), filepath.Join(dir, "token")
	for path, data := range map[string][]byte{
		ca: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}), secret: []byte(token),
	} {
		if err := os.WriteFile(path, data, 0o600); err != nil {
			r.t.Fatal(err)
		}
	}
	return map[string]any{"endpoint": server.URL, "caFile": ca, "tokenFile": secret, "interval": "1s", "queryConfig": false}
}
