// Command barehandler is the floor of what a lock over HTTP costs: net/http
// and go-redis running the sidecar's two scripts, without any feature. It
// keeps nothing but the token of each lock and renews nothing.
package main

import (
	"flag"
	"fmt"
	"net/http"
	"os"

	"github.com/redis/go-redis/v9"
)

func main() {
	redisAddr := flag.String("redis", "127.0.0.1:6379", "address of the Redis server")
	listen := flag.String("listen", "127.0.0.1:5625", "address to serve on")
	flag.Parse()
	if err := serve(*redisAddr, *listen); err != nil {
		fmt.Fprintln(os.Stderr, "barehandler:", err)
		os.Exit(1)
	}
}

func serve(redisAddr, listen string) error {
	rdb := redis.NewClient(&redis.Options{Addr: redisAddr})
	defer rdb.Close()
	h := &handler{rdb: rdb, tokens: map[string]string{}}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /locks/{key...}", h.acquire)
	mux.HandleFunc("DELETE /locks/{key...}", h.release)
	return http.ListenAndServe(listen, mux)
}
