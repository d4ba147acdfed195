// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

// Command allow is an admission webhook that looks at nothing: it decodes the review, allows it and answers with one and the same patch. What a
// call takes is the price of TLS, JSON and a processor, which any webhook pays.
//
// Input are an address and the lifetime of a process; output are answers. Only the benchmarks run it.
package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := serve(ctx, os.Args[1:]); err != nil && ctx.Err() == nil {
		fmt.Fprintln(os.Stderr, "allow:", err)
		os.Exit(1)
	}
}

func serve(ctx context.Context, args []string) error {
	f := flag.NewFlagSet("allow", flag.ContinueOnError)
	listen := f.String("listen", "", "address to serve")
	if err := f.Parse(args); err != nil {
		return err
	}
	pair, err := certificate()
	if err != nil {
		return err
	}
	s := &http.Server{
		Addr: *listen, Handler: http.HandlerFunc(allow), ReadHeaderTimeout: time.Minute,
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12},
	}
	defer context.AfterFunc(ctx, func() { _ = s.Close() })() // ListenAndServeTLS then says so
	if err := s.ListenAndServeTLS("", ""); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// certificate is nobody's: the benchmark asks for none.
func certificate() (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("make key: %w", err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("make certificate: %w", err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, nil
}

// patch is about as long as that of a profile.
const patch = `[{"op":"replace","path":"/spec/containers/0/resources","value":{"requests":{"kubernetes.io/batch-cpu":"2k","kubernetes.io/batch-memory":"4Gi"},` +
	`"limits":{"kubernetes.io/batch-cpu":"2k","kubernetes.io/batch-memory":"4Gi"}}},{"op":"add","path":"/spec/priority","value":5500}]`

// allow answers a review. A webhook whose name begins with validate changes nothing.
func allow(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the client has gone
	}
	var review struct {
		Request struct {
			UID    string
			Object json.RawMessage
		}
	}
	if err := json.Unmarshal(body, &review); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	response := map[string]any{"uid": review.Request.UID, "allowed": true}
	if !strings.HasPrefix(r.URL.Path, "/validate") {
		response["patchType"], response["patch"] = "JSONPatch", []byte(patch)
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}) // as above
}
