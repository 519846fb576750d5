package pgproxy_test
import ("testing";"time";"sync";"sync/atomic";"syscall";"github.com/jackc/pgx/v5";"slices")
func TestTmpLoad(t *testing.T){
 for _,n:=range []int{1,4,16,64} { for _,d:=range []time.Duration{0,500*time.Microsecond} {
  p:=start(t); 
  var conns []*pgx.Conn
  for range n { conns=append(conns,connect(t,p.DSN(),pgx.QueryExecModeExec)) }
  p.SetLatency(d)
  var ops atomic.Int64; var wg sync.WaitGroup
  stop:=time.Now().Add(2*time.Second)
  var a,b syscall.Rusage; syscall.Getrusage(0,&a)
  lat:=make([][]time.Duration,n)
  for i,c:=range conns { wg.Go(func(){ ctx:=within(t); for time.Now().Before(stop) { s:=time.Now(); if err:=c.Ping(ctx);err!=nil{t.Error(err);return}; lat[i]=append(lat[i],time.Since(s)); ops.Add(1)} }) }
  wg.Wait(); syscall.Getrusage(0,&b)
  all:=slices.Concat(lat...); slices.Sort(all)
  cpu:=time.Duration(b.Utime.Nano()+b.Stime.Nano()-a.Utime.Nano()-a.Stime.Nano())
  t.Logf("n=%d d=%v ops/s=%d p50=%v p99=%v cpu=%.0f%% per-op=%v",n,d,ops.Load()/2,all[len(all)/2],all[len(all)*99/100],float64(cpu)/2e9*100,cpu/time.Duration(ops.Load()))
 }}
}
