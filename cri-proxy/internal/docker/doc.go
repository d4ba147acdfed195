// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

// Package docker is the Docker mode of koord-runtime-proxy: it stands on a unix socket between a Docker Engine client
// (cri-dockerd, the docker command) and dockerd's socket.
//
// Inputs are HTTP requests; outputs the same requests at the backend, its replies, and calls of a Handler around the
// creation, update, start, stop and removal of Kubernetes' containers. Everything else passes as it is, flushed at once;
// connections that turn into raw streams (attach, exec, build sessions) are joined byte for byte with half-close. The proxy
// keeps no state: what a decision needs is asked of the daemon, so a restart of either side loses nothing. It may import
// adapt/docker, model and the standard library; never policy or kernel, which the Handler brings.
package docker
